//! Remembers the text of PHP's settings files until the next reload.
//!
//! php-fpm's master reads them once, but forkyard may start a PHP process at any time. If a file has changed, the new
//! process receives the remembered text. Changes to programs and libraries are only detected: package managers replace
//! them atomically, and the files of one PHP version fit together.

use super::files::{self, Fingerprint, FingerprintCache, Origin, in_directory};
use forkyard_sys::file::FileState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// The option for [`IniFiles`] on a descriptor ([`crate::SCRIPT`]), as JSON.
pub const OPTION: &str = "--held";
const MOST_BYTES: u64 = 1 << 20;
const MOST_BYTES_OF_ALL: usize = 8 << 20;
const MOST_EXTENSIONS: usize = 500;
/// JSON takes up to four bytes per byte of text; paths are short.
pub const MOST_JSON_BYTES: usize = 5 * MOST_BYTES_OF_ALL;

/// A settings file of PHP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IniFile {
    /// Its path.
    pub path: PathBuf,
    /// Its contents.
    pub text: Vec<u8>,
}

/// The files that PHP reads its settings from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IniFiles {
    /// php.ini, if there is one.
    pub php_ini: Option<IniFile>,
    /// The files read after it, in order.
    pub scanned: Vec<IniFile>,
}

/// The state of an [`Origin`] at one time.
#[derive(Debug)]
pub struct IniSnapshot {
    states: BTreeMap<PathBuf, Option<FileState>>,
    /// Known only after a process has loaded them.
    extensions: BTreeMap<PathBuf, Option<FileState>>,
    fingerprint: Fingerprint,
    /// `None`: too large or unreadable, so processes read the files themselves.
    ini: Option<IniFiles>,
}

/// Files that have changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Settings files.
    pub ini: Vec<PathBuf>,
    /// forkyard-php, libphp and extensions.
    pub programs: Vec<PathBuf>,
    now: Vec<Option<FileState>>,
}

impl IniSnapshot {
    /// Reads the files.
    pub fn take(origin: &Origin) -> IniSnapshot {
        IniSnapshot {
            states: origin.states(),
            extensions: BTreeMap::new(),
            fingerprint: FingerprintCache::default().origin(origin),
            ini: read(origin),
        }
    }

    /// The fingerprint of all files.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The remembered settings files.
    pub fn ini(&self) -> Option<&IniFiles> {
        self.ini.as_ref()
    }

    /// Adds extensions that a process has loaded. Paths that the master must not stat are ignored.
    pub fn note_extensions<'p>(&mut self, paths: impl IntoIterator<Item = &'p PathBuf>) {
        for path in paths.into_iter().filter(|path| files::is_credible(path)) {
            if self.extensions.len() < MOST_EXTENSIONS && !self.extensions.contains_key(path) {
                self.extensions.insert(path.clone(), FileState::of(path));
            }
        }
    }

    /// The files of loaded extensions.
    pub fn extensions(&self) -> impl Iterator<Item = &PathBuf> {
        self.extensions.keys()
    }

    /// The files that have changed; `None` if none has.
    pub fn changes(&self, now: &Origin) -> Option<Changes> {
        let states = now.states();
        let is_changed = |path: &&PathBuf| self.states.get(*path) != states.get(*path);
        // Known files first: they explain more than the files that replaced them.
        let added = states.keys().filter(|path| !self.states.contains_key(*path));
        let changed = self.states.keys().filter(is_changed).chain(added).cloned();
        let is_program = |path: &&PathBuf| **path == now.program || now.library.as_ref() == Some(*path);
        let (mut programs, ini): (Vec<_>, Vec<_>) = changed.partition(|path| is_program(&path));
        let extensions = self.extensions.iter();
        let changed = extensions.filter(|(path, then)| FileState::of(path) != **then);
        programs.extend(changed.map(|(path, _)| path.clone()));
        let now = ini
            .iter()
            .chain(&programs)
            .map(|path| FileState::of(path))
            .collect();
        (!programs.is_empty() || !ini.is_empty()).then_some(Changes { ini, programs, now })
    }
}

fn read(origin: &Origin) -> Option<IniFiles> {
    let php_ini = origin.php_ini.as_ref().map(|path| in_directory(path));
    let mut files = IniFiles {
        php_ini: match php_ini.filter(|path| path.exists()) {
            Some(path) => Some(read_file(path)?),
            None => None,
        },
        scanned: Vec::new(),
    };
    for directory in &origin.scanned {
        for path in Origin::entries(directory) {
            let is_ini = path.extension().is_some_and(|extension| extension == "ini");
            if is_ini && path.is_file() {
                files.scanned.extend(read_file(path));
            }
        }
    }
    let texts = files.php_ini.iter().chain(&files.scanned);
    let bytes: usize = texts.map(|file| file.text.len()).sum();
    (bytes <= MOST_BYTES_OF_ALL).then_some(files)
}

fn read_file(path: PathBuf) -> Option<IniFile> {
    let mut text = Vec::new();
    let file = std::fs::File::open(&path).ok()?;
    let bytes = file.take(MOST_BYTES + 1).read_to_end(&mut text).ok()?;
    (bytes as u64 <= MOST_BYTES).then_some(IniFile { path, text })
}

impl Changes {
    /// The line for the log.
    pub fn line(&self) -> String {
        let (path, others) = match (self.ini.split_first(), self.programs.split_first()) {
            (Some((path, rest)), _) => (path, rest.len() + self.programs.len()),
            (None, Some((path, rest))) => (path, rest.len()),
            (None, None) => return String::new(),
        };
        let more = match others {
            0 => String::new(),
            1 => " and another file".to_owned(),
            others => format!(" and {others} other files"),
        };
        let what_happens = match (self.ini.is_empty(), self.programs.is_empty()) {
            (false, true) => "PHP is started with the settings of before",
            (false, false) => {
                "PHP is started with the settings of before, and with the programs that are there now,"
            }
            (true, _) => "PHP starts with the present files; running workers continue",
        };
        let path = path.display();
        format!("{path}{more} changed since the start or the last reload: {what_happens} until a reload")
    }
}

#[cfg(test)]
mod tests {
    use super::IniSnapshot;
    use crate::php::files::Origin;
    use std::fs;
    use std::path::PathBuf;

    #[test]
    fn what_was_read_stays_and_what_changed_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("etc/conf.d")).unwrap();
        for name in [
            "program",
            "library",
            "etc/php.ini",
            "etc/conf.d/b.ini",
            "etc/conf.d/a.ini",
            "etc/conf.d/x.txt",
        ] {
            fs::write(path(name), name).unwrap();
        }
        let origin = Origin {
            program: path("program"),
            library: Some(path("library")),
            php_ini: Some(path("etc")),
            scanned: vec![path("etc/conf.d"), path("nothing")],
        };
        let held = IniSnapshot::take(&origin);
        assert_eq!(held.changes(&origin), None);
        let files = held.ini().unwrap();
        assert_eq!(files.php_ini.as_ref().unwrap().text, b"etc/php.ini");
        let scanned: Vec<_> = files.scanned.iter().map(|file| file.path.clone()).collect();
        assert_eq!(scanned, [path("etc/conf.d/a.ini"), path("etc/conf.d/b.ini")]);

        fs::write(path("library"), "another").unwrap();
        let changes = held.changes(&origin).unwrap();
        assert_eq!(
            (changes.ini.len(), &changes.programs),
            (0, &vec![path("library")])
        );
        assert!(
            changes.line().contains("library changed since"),
            "{}",
            changes.line()
        );
        fs::remove_file(path("etc/conf.d/b.ini")).unwrap();
        fs::write(path("etc/php.ini"), "a new text").unwrap();
        let changes = held.changes(&origin).unwrap();
        assert_eq!(changes.ini, [path("etc/conf.d/b.ini"), path("etc/php.ini")]);
        assert!(
            changes.line().contains("b.ini and 2 other files changed"),
            "{}",
            changes.line()
        );
    }

    #[test]
    fn extensions_are_known_once_they_are_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let origin = Origin {
            program: dir.path().join("program"),
            library: None,
            php_ini: None,
            scanned: Vec::new(),
        };
        let mut held = IniSnapshot::take(&origin);
        let known = PathBuf::from("/usr/lib/forkyard-no-such-extension.so");
        held.note_extensions([&known, &dir.path().join("not-below-usr.so")]);
        assert_eq!(held.extensions().collect::<Vec<_>>(), [&known]);
        assert_eq!(held.changes(&origin), None);
        held.extensions.insert(PathBuf::from("/usr/bin/env"), None);
        let first = held.changes(&origin).unwrap();
        assert_eq!(first.programs, [PathBuf::from("/usr/bin/env")]);
        assert_eq!(held.changes(&origin), Some(first), "the same change");
    }
}
