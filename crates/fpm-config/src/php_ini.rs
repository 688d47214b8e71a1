//! php-fpm's inputs before its own configuration: php.ini (PHPRC), further ini files (PHP_INI_SCAN_DIR), and the
//! configuration file set in php.ini (`fpm.config`).

use super::Options;
use super::ini::{self, Statement};
use super::machine::{Machine, value_of};
use super::paths::directory;
use std::path::{Path, PathBuf};

const NAMES: [&str; 2] = ["php-fpm-fcgi.ini", "php.ini"];
const CONFIG: &str = "fpm.config";

pub fn complete(mut options: Options, machine: &dyn Machine) -> Options {
    if options.no_php_ini {
        options.php_ini = None;
    } else {
        options.php_ini = options
            .php_ini
            .take()
            .or_else(|| from_environment(&options, machine));
        options.scan_dir = machine.env("PHP_INI_SCAN_DIR");
    }
    if options.config.is_none() {
        options.config = configured(&options, machine).filter(|path| !path.is_empty());
    }
    options
}

fn from_environment(options: &Options, machine: &dyn Machine) -> Option<PathBuf> {
    let named = machine.env("PHPRC").filter(|path| !path.is_empty())?;
    let named = PathBuf::from(named);
    if machine.exists(&named) && !machine.is_dir(&named) {
        return Some(named);
    }
    let usual = PathBuf::from(directory(options.version()));
    NAMES.iter().find_map(|name| {
        let mut files = [&named, &usual].into_iter();
        files
            .find(|directory| machine.exists(&directory.join(name)))
            .map(|directory| directory.join(name))
    })
}

fn configured(options: &Options, machine: &dyn Machine) -> Option<String> {
    let defined = options.defines.iter().rev().find(|(name, _)| name == CONFIG);
    if let Some((_, value)) = defined {
        return read(&format!("{CONFIG}={value}\n"), options, machine);
    }
    if options.no_php_ini {
        return None;
    }
    let text = |path: &Path| {
        let bytes = machine.read_file(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let mut files: Vec<PathBuf> = main_file(options, machine).into_iter().collect();
    for directory in scanned(options) {
        files.extend(machine.glob(&format!("{directory}/*.ini")).unwrap_or_default());
    }
    files
        .iter()
        .rev()
        .find_map(|path| read(&text(path), options, machine))
}

fn main_file(options: &Options, machine: &dyn Machine) -> Option<PathBuf> {
    let named = options
        .php_ini
        .clone()
        .unwrap_or_else(|| PathBuf::from(directory(options.version())));
    if !machine.is_dir(&named) {
        return Some(named);
    }
    let files = NAMES.iter().map(|name| named.join(name));
    files.into_iter().find(|path| machine.exists(path))
}

/// Directories of further ini files. An empty list element means the default.
fn scanned(options: &Options) -> Vec<String> {
    let usual = format!("{}/conf.d", directory(options.version()));
    match options.scan_dir.as_deref() {
        None => vec![usual],
        Some("") => Vec::new(),
        Some(list) => list
            .split(':')
            .map(|part| {
                if part.is_empty() {
                    usual.clone()
                } else {
                    part.to_owned()
                }
            })
            .collect(),
    }
}

fn read(text: &str, options: &Options, machine: &dyn Machine) -> Option<String> {
    last_entry(text, CONFIG, &|name| value_of(name, options.version(), machine))
}

/// The last value of a setting in php.ini's global part, without expanding variables.
pub fn entry(text: &str, name: &str) -> Option<String> {
    last_entry(text, name, &|_| None)
}

fn last_entry(text: &str, wanted: &str, lookup: &dyn Fn(ini::Name<'_>) -> Option<String>) -> Option<String> {
    let mut found = None;
    for line in text
        .lines()
        .filter(|line| line.contains(wanted) || line.starts_with('['))
    {
        for statement in ini::parse(line, lookup).0 {
            match statement {
                Statement::Section(name) if name.contains('=') => return found,
                Statement::Entry(name, Some(value)) if name == wanted => found = Some(value),
                _ => {}
            }
        }
    }
    found
}
