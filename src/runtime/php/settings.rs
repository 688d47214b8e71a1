//! What a preloader is told about PHP.

use crate::config;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A pool's PHP settings, as they travel to its preloader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// PHP version (`8.2`).
    pub version: String,
    /// libphp's absolute path; `None`: found from the version.
    pub library: Option<PathBuf>,
    /// php.ini or the directory it is in; `None`: see [`Settings::php_ini_directories`].
    pub php_ini: Option<PathBuf>,
    /// Script path endings that may be run; empty: any.
    pub limit_extensions: Vec<String>,
    /// php.ini settings that scripts may change; applied in order.
    pub php_value: Vec<(String, String)>,
    /// php.ini settings that scripts may not change; applied in order.
    pub php_admin_value: Vec<(String, String)>,
}

impl From<&config::Php> for Settings {
    fn from(php: &config::Php) -> Settings {
        Settings {
            version: php.version.clone(),
            library: php.library.clone(),
            php_ini: php.php_ini.clone(),
            limit_extensions: php.limit_extensions.clone(),
            php_value: php.php_value.clone(),
            php_admin_value: php.php_admin_value.clone(),
        }
    }
}

impl Settings {
    /// Where php.ini is looked for when none is named, best first: php-fpm's own, then that of libphp, which is there
    /// when php-fpm is not installed.
    pub fn php_ini_directories(&self) -> [PathBuf; 2] {
        ["fpm", "embed"].map(|sapi| PathBuf::from(format!("/etc/php/{}/{sapi}", self.version)))
    }

    /// The lines that PHP has to know at module start-up, because they can't be set later: extensions, and OPcache's
    /// sizes. The pool has an OPcache of its own, so it can have its own sizes. `None`: there are no such settings.
    ///
    /// # Errors
    /// The name of a setting whose value can't be written as a line.
    pub fn start_lines(&self) -> Result<Option<String>, String> {
        let mut lines = String::new();
        for (name, value) in self.php_value.iter().chain(&self.php_admin_value) {
            if is_start_setting(name) {
                let quoted = quote(value).ok_or_else(|| name.clone())?;
                lines.push_str(&format!("{name}={quoted}\n"));
            }
        }
        Ok((!lines.is_empty()).then_some(lines))
    }

    /// The settings that are set after module start-up, with whether they are for administrators.
    pub fn later_settings(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        let values = self.php_value.iter().map(|(name, value)| (name.as_str(), value.as_str(), false));
        let admin = self.php_admin_value.iter().map(|(name, value)| (name.as_str(), value.as_str(), true));
        values.chain(admin).filter(|(name, _, _)| !is_start_setting(name))
    }
}

fn is_start_setting(name: &str) -> bool {
    name == "extension" || name == "zend_extension" || name.starts_with("opcache.")
}

/// A value in php.ini's syntax, taken literally.
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
    use super::Settings;

    fn settings(php_value: &[(&str, &str)], php_admin_value: &[(&str, &str)]) -> Settings {
        let own = |list: &[(&str, &str)]| list.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        Settings {
            version: "8.2".into(),
            library: None,
            php_ini: None,
            limit_extensions: vec![],
            php_value: own(php_value),
            php_admin_value: own(php_admin_value),
        }
    }

    #[test]
    fn what_must_be_known_at_start_goes_there_and_nowhere_else() {
        let settings = settings(
            &[("memory_limit", "64M"), ("opcache.memory_consumption", "16")],
            &[("extension", "ffi"), ("error_log", "/x")],
        );
        let lines = settings.start_lines().unwrap().unwrap();
        assert_eq!(lines, "opcache.memory_consumption='16'\nextension='ffi'\n");
        let later: Vec<_> = settings.later_settings().collect();
        assert_eq!(later, [("memory_limit", "64M", false), ("error_log", "/x", true)]);
    }

    #[test]
    fn values_are_quoted_literally_or_refused() {
        let lines = |value| settings(&[("opcache.preload", value)], &[]).start_lines();
        assert_eq!(lines("/a b$c\"d"), Ok(Some("opcache.preload='/a b$c\"d'\n".into())));
        assert_eq!(lines("/it's"), Ok(Some("opcache.preload=\"/it's\"\n".into())));
        assert_eq!(lines("/it's \"x\""), Err("opcache.preload".into()));
        assert_eq!(lines("a\nextension=evil"), Err("opcache.preload".into()));
        assert_eq!(settings(&[], &[]).start_lines(), Ok(None));
    }

    #[test]
    fn php_fpms_ini_comes_first() {
        let [first, second] = settings(&[], &[]).php_ini_directories();
        assert_eq!(first, std::path::Path::new("/etc/php/8.2/fpm"));
        assert_eq!(second, std::path::Path::new("/etc/php/8.2/embed"));
    }
}
