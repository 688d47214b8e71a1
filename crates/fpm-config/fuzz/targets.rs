//! Fuzz targets of php-fpm's files.

#[path = "../../config/fuzz/alone.rs"]
mod alone;

use super::import as importing;
use super::{Line, Machine, Options, OsFailure};
pub(crate) use alone::Alone;
use alone::FILE;
use forkyard_config::{Config, Diagnostic, Errors, Kind, UserIds, World, WorldError, parse};
use forkyard_fuzz::{Target, comes_back, target};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

pub const TARGETS: &[Target] = &[target("fpm_ini", 1500, fpm), target("fpm_import", 1500, import)];

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

    fn touch(&self, _: &Path) -> Result<(), OsFailure> {
        Ok(())
    }

    fn glob(&self, pattern: &str) -> Result<Vec<PathBuf>, i32> {
        self.files(Path::new(pattern)).map_err(|_| 2)
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
    let (config, journal) = super::load(&options(), &machine);
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
        Some(config) => comes_back(config),
        None => assert!(
            !journal.lines.is_empty(),
            "it can't be used, and nothing says why"
        ),
    }
    let (usable, _) = super::test(&options(), true, &machine, &|_| Vec::new());
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

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
