//! Tests of the configuration's rules and their exact messages.

mod application;
mod applications;
mod changes;
mod confine;
mod fastcgi;
mod file;
mod jobs;
mod listen;
mod manager;
mod overrides;
mod pool;
mod postgresql;
mod program;
mod release;
mod sample;
mod settings;
mod sharing;
mod skip;
mod worker_script;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::*;

struct Machine {
    root: bool,
    files: Vec<(&'static str, &'static str)>,
}

const ROOT: Machine = Machine {
    root: true,
    files: Vec::new(),
};

const USER: Machine = Machine {
    root: false,
    files: Vec::new(),
};

impl World for Machine {
    fn is_root(&self) -> bool {
        self.root
    }

    fn is_dir(&self, path: &Path) -> bool {
        [
            "/",
            "/run",
            "/run/../run",
            "/link",
            "/var/log",
            "/srv/www",
            "/srv/www/app",
            "/srv/app",
            "/usr/lib/cgi-bin",
            "/etc/php/8.2/fpm",
        ]
        .iter()
        .any(|dir| path == *dir)
    }

    /// `/link` leads to `/run`.
    fn without_links(&self, directory: &Path) -> PathBuf {
        match directory.to_str() {
            Some("/link" | "/run/../run") => PathBuf::from("/run"),
            _ => directory.to_owned(),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        let files = [
            "/usr/lib/libphp8.2.so",
            "/usr/lib/cgit/cgit.cgi",
            "/srv/app/.venv/bin/python",
            "/srv/jobs.php",
        ];
        let own = self.files.iter().any(|(name, _)| path == *name);
        self.is_dir(path) || own || files.iter().any(|file| path == *file)
    }

    fn user(&self, name: &str) -> Option<UserIds> {
        match name {
            "root" => Some(UserIds { uid: 0, gid: 0 }),
            "www-data" => Some(UserIds { uid: 33, gid: 33 }),
            "forkyard" if !self.exists(Path::new("/no-forkyard")) => Some(UserIds { uid: 990, gid: 990 }),
            "nobody" => Some(UserIds {
                uid: 65534,
                gid: 65534,
            }),
            "forkyard-jobs" => Some(UserIds { uid: 991, gid: 991 }),
            "halfroot" => Some(UserIds { uid: 7, gid: 0 }),
            _ => None,
        }
    }

    fn user_by_id(&self, uid: u32) -> Option<UserIds> {
        ["root", "www-data"]
            .iter()
            .filter_map(|name| self.user(name))
            .find(|ids| ids.uid == uid)
    }

    fn group(&self, name: &str) -> Option<u32> {
        match name {
            "root" => Some(0),
            "www-data" => Some(33),
            _ => None,
        }
    }

    fn env(&self, name: &str) -> Option<String> {
        (name == "PATH").then(|| "/usr/bin:/bin".to_owned())
    }

    /// Environment variables are files with a leading dollar sign in their names.
    fn variables(&self) -> Vec<(String, String)> {
        let named = self
            .files
            .iter()
            .filter_map(|(name, text)| Some((name.strip_prefix('$')?, text)));
        named
            .map(|(name, text)| (name.to_owned(), (*text).to_owned()))
            .collect()
    }

    fn memory(&self) -> Option<u64> {
        let memory = self.files.iter().find(|(name, _)| *name == "/memory");
        memory.and_then(|(_, bytes)| bytes.parse().ok())
    }

    fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, WorldError> {
        if host == "localhost" {
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
        } else {
            Err(WorldError::Message("Name or service not known".to_owned()))
        }
    }

    fn files(&self, pattern: &Path) -> Result<Vec<PathBuf>, WorldError> {
        if pattern == Path::new("/etc/locked/*.toml") {
            return Err(WorldError::Directory {
                directory: PathBuf::from("/etc/locked"),
                error: io::Error::from_raw_os_error(13),
            });
        }
        let pattern = pattern.to_str().unwrap();
        Ok(self
            .files
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| glob::matches(pattern, name))
            .map(PathBuf::from)
            .collect())
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        match self.files.iter().find(|(name, _)| path == Path::new(name)) {
            Some((_, "unreadable")) => Err(io::Error::from_raw_os_error(13).into()),
            Some((_, "latin")) => Ok(b"[pool.x]\nuser = \"\xe9\"\n".to_vec()),
            Some((_, text)) => Ok(text.as_bytes().to_vec()),
            None => Err(io::Error::from_raw_os_error(2).into()),
        }
    }
}

fn parsed(text: &str, world: &Machine) -> Result<Loaded, Errors> {
    parse(text, Path::new("f.toml"), world)
}

/// All findings, as the check command shows them, without the file's name.
fn found(text: &str, world: &Machine) -> Vec<String> {
    let diagnostics = match parsed(text, world) {
        Ok(loaded) => loaded.warnings,
        Err(errors) => errors.diagnostics,
    };
    diagnostics
        .iter()
        .map(|diagnostic| diagnostic.to_string().replace("f.toml:", ""))
        .collect()
}

fn valid(text: &str) -> Config {
    match parsed(text, &ROOT) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{errors}"),
    }
}

/// A pool with valid lines 2 to 6; `more` starts at line 7.
fn pool(more: &str) -> String {
    let application = "[pool.www.application]\nruntime = \"php\"\nversion = \"8.2\"\n";
    format!(
        "[pool.www]\nlisten = \"/run/a.sock\"\nuser = \"www-data\"\npm = \"static\"\nmax_children = 2\n\n{more}\n{application}"
    )
}

fn one(text: &str, world: &Machine, expected: &str) {
    assert_eq!(found(text, world), [expected], "in\n{text}");
}

/// Checks the findings for several texts. A case has its lines, and then its findings, marked with `! `. The first case
/// may have no lines.
fn cases(text: impl Fn(&str) -> String, world: &Machine, cases: &str) {
    each_case(cases, |case| found(&text(case), world));
}

pub(crate) fn each_case(cases: &str, found: impl Fn(&str) -> Vec<String>) {
    let lines = cases.lines().map(str::trim);
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    let is_same = |a: &&str, b: &&str| !a.starts_with("! ") || b.starts_with("! ");
    for case in lines.chunk_by(is_same) {
        let (findings, lines): (Vec<&str>, Vec<&str>) = case.iter().partition(|line| line.starts_with("! "));
        let expected: Vec<&str> = findings.iter().map(|finding| &finding[2..]).collect();
        assert!(!expected.is_empty(), "nothing is expected of {lines:?}");
        assert_eq!(found(&lines.join("\n")), expected, "in\n{lines:#?}");
    }
}

/// A text of two parts for [`cases`]. A line `--` is between them.
fn in_halves(text: impl Fn(&str, &str) -> String) -> impl Fn(&str) -> String {
    move |case| {
        let (first, second) = case.split_once("--").unwrap_or((case, ""));
        text(first.trim_end(), second.trim_start())
    }
}
