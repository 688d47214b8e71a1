//! Fuzz targets of configuration files, php-fpm's files and applications' own files.

use super::fpm::{Line, Machine, Options, OsFailure};
use super::{
    Config, Diagnostic, Errors, Kind, UserIds, World, WorldError, glob, import as importing, parse, resolve,
    site,
};
use forkyard_fuzz::{Target, target};
use forkyard_protocol::inspector::Settings;
use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub const TARGETS: &[Target] = &[
    target("site_toml", 800, site),
    target("site_passengerfile", 600, passengerfile),
    target("site_package", 400, package),
    target("config_toml", 1500, toml),
    target("fpm_ini", 1500, fpm),
    target("fpm_import", 1500, import),
    target("glob", 120, glob),
];

const FILE: &str = "/etc/forkyard/f";

pub(crate) struct Alone<'f> {
    file: &'f [u8],
    touched: RefCell<HashSet<PathBuf>>,
}

impl<'f> Alone<'f> {
    pub(crate) fn with(file: &'f [u8]) -> Alone<'f> {
        Alone {
            file,
            touched: RefCell::default(),
        }
    }
}

impl World for Alone<'_> {
    fn is_root(&self) -> bool {
        true
    }

    fn is_dir(&self, path: &Path) -> bool {
        ["/", "/run", "/srv/www", "/var/log", "/usr"]
            .iter()
            .any(|known| path == *known)
    }

    fn exists(&self, path: &Path) -> bool {
        self.is_dir(path) || path == Path::new("/usr/lib/libphp8.2.so") || path == Path::new(FILE)
    }

    fn user(&self, name: &str) -> Option<UserIds> {
        let known = [("root", 0), ("www-data", 33)]
            .iter()
            .find(|(known, _)| *known == name);
        known.map(|(_, id)| UserIds { uid: *id, gid: *id })
    }

    fn user_by_id(&self, uid: u32) -> Option<UserIds> {
        [0, 33].contains(&uid).then_some(UserIds { uid, gid: uid })
    }

    fn group(&self, name: &str) -> Option<u32> {
        self.user(name).map(|ids| ids.gid)
    }

    fn env(&self, name: &str) -> Option<String> {
        (name == "HOME").then(|| "/root".to_owned())
    }

    fn resolve(&self, _: &str, port: u16) -> Result<Vec<SocketAddr>, WorldError> {
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    }

    fn files(&self, pattern: &Path) -> Result<Vec<PathBuf>, WorldError> {
        let is_it = pattern
            .to_str()
            .is_some_and(|pattern| glob::matches(pattern, FILE));
        Ok(is_it.then(|| FILE.into()).into_iter().collect())
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, WorldError> {
        match path == Path::new(FILE) {
            true => Ok(self.file.to_vec()),
            false => Err(io::Error::from_raw_os_error(2).into()),
        }
    }
}

impl Machine for Alone<'_> {
    fn read_file(&self, path: &Path) -> Result<Vec<u8>, OsFailure> {
        let failed = |error: WorldError| OsFailure {
            text: error.to_string(),
            code: Some(2),
        };
        self.read(path).map_err(failed)
    }

    fn php_version(&self, version: &str) -> Option<String> {
        Some(format!("{version}.7"))
    }

    fn touch(&self, path: &Path) -> Result<(), OsFailure> {
        self.touched.borrow_mut().insert(path.to_path_buf());
        Ok(())
    }

    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>, i32> {
        self.files(Path::new(pattern)).map_err(|_| 2)
    }
}

/// Checks that each diagnostic has a valid place and text.
fn check(errors: &Errors, input: &[u8]) {
    assert!(!errors.diagnostics.is_empty());
    let lines = input.split(|byte| *byte == b'\n').collect::<Vec<_>>();
    for diagnostic in &errors.diagnostics {
        let location = &diagnostic.location;
        assert!(
            location.line <= lines.len(),
            "line {} of {}",
            location.line,
            lines.len()
        );
        if location.line > 0 {
            let length = lines[location.line - 1].len() + 1;
            assert!(
                (1..=length + 1).contains(&location.column),
                "column {} of {length}",
                location.column
            );
        }
        assert!(!diagnostic.to_string().is_empty());
    }
}

fn survives(config: &Config) {
    let written = serde_json::to_vec(config).expect("a configuration can be written");
    let again: Config = serde_json::from_slice(&written).expect("and read again");
    assert!(again == *config, "another configuration is read than was written");
}

fn toml(input: &[u8]) {
    let world = Alone::with(input);
    let path = Path::new(FILE);
    let parsed = resolve::parse_bytes(input, path, &world);
    let _ = resolve::control_socket(input, path, &world);
    match parsed {
        Ok(loaded) => {
            survives(&loaded.config);
            let names: HashSet<&str> = loaded
                .config
                .pools
                .iter()
                .map(|pool| pool.name.as_str())
                .collect();
            assert_eq!(names.len(), loaded.config.pools.len(), "a pool twice");
        }
        Err(errors) => check(&errors, input),
    }
}

fn can_be_passed_on(settings: &Settings) {
    let texts = settings.env.keys().chain(settings.env.values());
    let mut texts = texts.chain(&settings.entry).chain(&settings.start_command);
    assert!(texts.all(|text| !text.contains('\0')));
    let mut names = settings.env.keys();
    assert!(names.all(|name| !name.is_empty() && !name.contains('=')));
}

fn site(input: &[u8]) {
    match site::parse(input, Path::new(FILE)) {
        Ok(settings) => {
            can_be_passed_on(&settings);
            assert!(settings.max_per_app != Some(0) && settings.max_requests != Some(0));
            assert!(settings.entry.as_deref() != Some("") && settings.start_command.as_deref() != Some(""));
            let written = serde_json::to_vec(&settings).expect("settings can be written");
            assert_eq!(serde_json::from_slice::<Settings>(&written).ok(), Some(settings));
        }
        Err(errors) => check(&errors, input),
    }
}

fn passengerfile(input: &[u8]) {
    match site::passengerfile(input, Path::new(FILE)) {
        Ok(Some(settings)) => {
            can_be_passed_on(&settings);
            assert!(settings.max_requests != Some(0) && settings.runtime.is_some());
        }
        Ok(None) => {}
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with(FILE) && text.contains("error: "), "{text}");
            let location = text[FILE.len()..].split(' ').next().unwrap_or_default();
            if let Some(line) = location
                .split(':')
                .nth(1)
                .and_then(|line| line.parse::<usize>().ok())
            {
                assert!(line <= input.split(|byte| *byte == b'\n').count(), "{text}");
            }
        }
    }
}

fn package(input: &[u8]) {
    if let Some(command) = site::start_script(input) {
        assert!(!command.is_empty() && !command.contains('\0'));
    }
}

fn options() -> Options {
    Options {
        config: Some(FILE.to_owned()),
        version: Some("8.2".to_owned()),
        ..Options::default()
    }
}

/// Checks that messages name existing lines.
fn fpm(input: &[u8]) {
    let machine = Alone::with(input);
    let (config, journal) = super::fpm::load(&options(), &machine);
    let lines = input.split(|byte| *byte == b'\n').count();
    for line in &journal.lines {
        let (Line::Log(_, text) | Line::Php(text)) = line;
        let location = text
            .strip_prefix(&format!("[{FILE}:"))
            .and_then(|rest| rest.split(']').next());
        if let Some(number) = location.and_then(|location| location.parse::<usize>().ok()) {
            assert!((1..=lines).contains(&number), "{text}");
        }
    }
    match &config {
        Some(config) => survives(config),
        None => assert!(
            !journal.lines.is_empty(),
            "it can't be used, and nothing says why"
        ),
    }
    let (usable, _) = super::fpm::test(&options(), true, &machine, &|_| Vec::new());
    assert!(usable || config.is_none(), "-t refuses what a start takes");
}

/// Checks that the imported TOML is valid and defines the same pools.
fn import(input: &[u8]) {
    let machine = Alone::with(input);
    let imported = importing::import(&options(), &machine);
    let (Some(text), Some(config)) = (&imported.text, &imported.config) else {
        return;
    };
    match parse(text, Path::new("imported.toml"), &machine) {
        Ok(loaded) => {
            let names = |config: &Config| {
                config
                    .pools
                    .iter()
                    .map(|pool| pool.name.clone())
                    .collect::<HashSet<_>>()
            };
            if imported.lost.is_empty() {
                assert_eq!(names(&loaded.config), names(config));
            }
        }
        // Users and directories may be missing here, but the text is valid.
        Err(errors) => assert_eq!(mistake(&errors), None, "{text}"),
    }
}

/// The first error that a text has on every machine.
pub(crate) fn mistake(errors: &Errors) -> Option<&Diagnostic> {
    let is_of_the_text = |kind: &Kind| {
        matches!(
            kind,
            Kind::Syntax { .. } | Kind::UnknownKey { .. } | Kind::Value { .. }
        )
    };
    let mut diagnostics = errors.diagnostics.iter();
    diagnostics.find(|diagnostic| is_of_the_text(&diagnostic.kind))
}

/// A name without wildcards matches itself.
fn glob(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (pattern, name) = text.split_once('\n').unwrap_or((&text, &text));
    let hit = glob::matches(pattern, name);
    if !glob::is_pattern(pattern) {
        assert_eq!(hit, pattern == name);
    }
    assert!(glob::matches("*", name) || name.starts_with('.'));
    if !name.starts_with('.') {
        assert_eq!(
            glob::matches(&format!("*{pattern}"), name),
            glob::matches(&format!("**{pattern}"), name)
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
