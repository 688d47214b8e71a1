//! Turns a pool's settings into PHP's.

use super::ini_snapshot::IniFiles;
use forkyard_config::Php;
use forkyard_config::sharing::{is_start_setting, is_zygote_setting};
use forkyard_fpm_config::entry;
use std::path::{Path, PathBuf};

const EXPOSE: &str = "expose_php";
const LOCK_PLACE: &str = "opcache.lockfile_path";

/// Directories of the default php.ini, best first: php-fpm's, then libphp's.
pub fn php_ini_directories(php: &Php) -> [PathBuf; 2] {
    usual_directories(&php.version)
}

/// [`php_ini_directories`] for a version.
pub fn usual_directories(version: &str) -> [PathBuf; 2] {
    ["fpm", "embed"].map(|sapi| PathBuf::from(format!("/etc/php/{version}/{sapi}")))
}

/// The name of a setting with a value that php.ini can't contain as a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnfitSetting(pub String);

/// The ini lines for module start-up, which can't be set later: extensions and OPcache's sizes. `None` if there are
/// none.
///
/// # Errors
/// A value can't be an ini line.
pub fn start_lines(php: &Php) -> Result<Option<String>, UnfitSetting> {
    let mut lines = String::new();
    for (name, value) in &php.defines {
        lines.push_str(&format!("{name}={value}\n"));
    }
    for (name, value) in php.php_value.iter().chain(&php.php_admin_value) {
        if is_start_setting(name) {
            let quoted = quote(value).ok_or_else(|| UnfitSetting(name.clone()))?;
            lines.push_str(&format!("{name}={quoted}\n"));
        }
    }
    Ok((!lines.is_empty()).then_some(lines))
}

/// The functions that the pool disables, to be applied before code is preloaded.
pub fn disabled_functions(php: &Php) -> Option<String> {
    let all = php.php_value.iter().chain(&php.php_admin_value);
    let lists: Vec<&str> = all
        .filter(|(name, _)| name == "disable_functions")
        .map(|(_, value)| value.as_str())
        .collect();
    (!lists.is_empty()).then(|| lists.join(","))
}

/// The settings of [`start_lines`] that scripts must not change.
pub fn held_start_settings(php: &Php) -> impl Iterator<Item = &str> {
    let names = php.php_admin_value.iter().map(|(name, _)| name.as_str());
    names.filter(|name| is_start_setting(name))
}

/// The settings to apply after module start-up: name, value, and whether it is an admin value.
pub fn later_settings(php: &Php) -> impl Iterator<Item = (&str, &str, bool)> {
    all_settings(php).filter(|(name, _, _)| !is_start_setting(name))
}

fn all_settings(php: &Php) -> impl Iterator<Item = (&str, &str, bool)> {
    let values = php
        .php_value
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str(), false));
    let admin = php
        .php_admin_value
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str(), true));
    values.chain(admin)
}

/// Returns the settings that a zygote's worker applies itself: all except the settings of the zygote's start.
pub fn worker_settings(php: &Php) -> impl Iterator<Item = (&str, &str, bool)> {
    all_settings(php).filter(|(name, _, _)| !is_zygote_setting(name))
}

/// Moves OPcache's lock file to a directory that the pool can write. OPcache unlinks it right after creating it.
pub fn with_lock_in(php: &Php, directory: &Path) -> Php {
    let mut php = php.clone();
    let is_set = |list: &[(String, String)]| list.iter().any(|(name, _)| name == LOCK_PLACE);
    if !is_set(&php.php_value) && !is_set(&php.php_admin_value) {
        php.php_admin_value
            .push((LOCK_PLACE.to_owned(), directory.to_string_lossy().into_owned()));
    }
    php
}

/// Whether PHP will send its version to clients, according to files and settings.
pub fn exposes(php: &Php, ini: Option<&IniFiles>) -> bool {
    let files = ini
        .into_iter()
        .flat_map(|ini| ini.php_ini.iter().chain(&ini.scanned));
    let written = files.filter_map(|file| entry(&String::from_utf8_lossy(&file.text), EXPOSE));
    let set = php.defines.iter().chain(&php.php_admin_value);
    let set = set
        .filter(|(name, _)| name == EXPOSE)
        .map(|(_, value)| value.clone());
    // The last value wins; PHP's default is on.
    written.chain(set).last().is_none_or(|value| is_on(&value))
}

/// The pool's own value of a flag.
pub fn flag(php: &Php, name: &str) -> Option<bool> {
    let own = all_settings(php).filter(|(known, _, _)| *known == name);
    own.last().map(|(_, value, _)| is_on(value))
}

/// Whether PHP reads a flag's value as on.
pub fn is_on(value: &str) -> bool {
    let word = value.trim().to_ascii_lowercase();
    matches!(word.as_str(), "on" | "yes" | "true") || word.parse::<i64>().is_ok_and(|number| number != 0)
}

fn quote(value: &str) -> Option<String> {
    if value.contains(['\n', '\r', '\0']) {
        None
    } else if !value.contains('\'') {
        Some(format!("'{value}'"))
    } else if !value.contains(['"', '\\', '$']) {
        Some(format!("\"{value}\""))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{UnfitSetting, exposes, later_settings, php_ini_directories, start_lines, with_lock_in};
    use crate::php::ini_snapshot::{IniFile, IniFiles};
    use forkyard_config::{Php, RequestSettings};
    use std::path::Path;

    fn settings(php_value: &[(&str, &str)], php_admin_value: &[(&str, &str)]) -> Php {
        let own = |list: &[(&str, &str)]| list.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        Php {
            version: "8.2".into(),
            request_settings: RequestSettings::All,
            php_value: own(php_value),
            php_admin_value: own(php_admin_value),
            ..Php::default()
        }
    }

    #[test]
    fn what_must_be_known_at_start_goes_there_and_nowhere_else() {
        let settings = settings(
            &[("memory_limit", "64M"), ("opcache.memory_consumption", "16")],
            &[("extension", "ffi"), ("error_log", "/x")],
        );
        let lines = start_lines(&settings).unwrap().unwrap();
        assert_eq!(lines, "opcache.memory_consumption='16'\nextension='ffi'\n");
        let later: Vec<_> = later_settings(&settings).collect();
        assert_eq!(later, [("memory_limit", "64M", false), ("error_log", "/x", true)]);
    }

    #[test]
    fn values_are_quoted_literally_or_refused() {
        let lines = |value| start_lines(&settings(&[("opcache.preload", value)], &[]));
        assert_eq!(
            lines("/a b$c\"d"),
            Ok(Some("opcache.preload='/a b$c\"d'\n".into()))
        );
        assert_eq!(lines("/it's"), Ok(Some("opcache.preload=\"/it's\"\n".into())));
        assert_eq!(lines("/it's \"x\""), Err(UnfitSetting("opcache.preload".into())));
        assert_eq!(
            lines("a\nextension=evil"),
            Err(UnfitSetting("opcache.preload".into()))
        );
        assert_eq!(start_lines(&settings(&[], &[])), Ok(None));
    }

    #[test]
    fn the_lock_is_where_the_operator_wants_it_or_where_it_may_be() {
        let lines = |php: &Php| {
            start_lines(&with_lock_in(php, Path::new("/srv/tmp")))
                .unwrap()
                .unwrap()
        };
        assert_eq!(lines(&settings(&[], &[])), "opcache.lockfile_path='/srv/tmp'\n");
        let own = settings(&[], &[("opcache.lockfile_path", "/own")]);
        assert_eq!(lines(&own), "opcache.lockfile_path='/own'\n");
    }

    #[test]
    fn php_fpms_ini_comes_first() {
        let [first, second] = php_ini_directories(&settings(&[], &[]));
        assert_eq!(first, std::path::Path::new("/etc/php/8.2/fpm"));
        assert_eq!(second, std::path::Path::new("/etc/php/8.2/embed"));
    }

    #[test]
    fn what_says_last_whether_php_names_itself_wins() {
        let file = |text: &str| IniFile {
            path: "/etc/php.ini".into(),
            text: text.into(),
        };
        let ini = |php_ini: &str, scanned: &[&str]| IniFiles {
            php_ini: Some(file(php_ini)),
            scanned: scanned.iter().map(|text| file(text)).collect(),
        };
        let plain = settings(&[("expose_php", "0")], &[]);
        assert!(exposes(&plain, None), "it is an administrator's alone");
        let off = ini("[PHP]\nexpose_php = Off\n", &["precision = 3\n"]);
        assert!(!exposes(&plain, Some(&off)));
        assert!(exposes(&plain, Some(&ini("[HOST=a]\nexpose_php = Off\n", &[]))));
        assert!(exposes(
            &plain,
            Some(&ini("expose_php = 0", &["expose_php = On"]))
        ));
        let forced = settings(&[], &[("expose_php", "yes")]);
        assert!(exposes(&forced, Some(&off)));
        assert!(!exposes(&settings(&[], &[("expose_php", "no")]), None));
    }
}
