//! Determines the PHP version.

use std::sync::OnceLock;

static INSTALLED: OnceLock<String> = OnceLock::new();

/// The default version: the newest installed one, or else the newest that forkyard-php supports.
pub fn newest() -> &'static str {
    INSTALLED.get().map_or(forkyard_php_shim::NEWEST, String::as_str)
}

/// Sets the installed versions from file names next to forkyard-php. Call once before reading a configuration.
pub fn set_installed(files: impl Iterator<Item = String>) {
    if let Some(version) = newest_of(files) {
        let _ = INSTALLED.set(version);
    }
}

fn newest_of(files: impl Iterator<Item = String>) -> Option<String> {
    let versions = files.filter_map(|file| {
        let (version, _) = file.strip_suffix(".so")?.split_once('-')?;
        is_version(version).then(|| version.to_owned())
    });
    versions.reduce(|newest, version| {
        if is_before(&newest, &version) {
            version
        } else {
            newest
        }
    })
}

/// Derives the version from a configuration's path (`/etc/php/8.4/fpm/php-fpm.conf`) or the program's name
/// (`php-fpm8.4`).
pub fn version_of(config: Option<&str>, program: &str) -> String {
    config
        .and_then(of_path)
        .or_else(|| of_name(program))
        .unwrap_or(newest())
        .to_owned()
}

/// The directory below one named `php`, if it is a version.
pub fn of_path(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/php/")?;
    let (version, _) = rest.split_once('/')?;
    is_version(version).then_some(version)
}

fn of_name(program: &str) -> Option<&str> {
    let (_, version) = program.rsplit_once("-fpm")?;
    is_version(version).then_some(version)
}

pub fn is_before(version: &str, other: &str) -> bool {
    let numbers = |text: &str| {
        let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next(), parts.next())
    };
    numbers(version) < numbers(other)
}

/// Whether a text has the form MAJOR.MINOR.
pub fn is_version(text: &str) -> bool {
    let number = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.')
        .is_some_and(|(major, minor)| number(major) && number(minor))
}

#[cfg(test)]
mod tests {
    use super::{is_before, newest, newest_of, version_of};

    #[test]
    fn the_newest_is_meant_of_files_that_are_there() {
        let newest = |files: &[&str]| newest_of(files.iter().map(|file| (*file).to_owned()));
        assert_eq!(
            newest(&["8.10-1.so", "8.2-20220829.so", "8.4-20240924.so"]).as_deref(),
            Some("8.10")
        );
        assert_eq!(newest(&["new.so", "8.4.so", "8-1.so", "8.4-1"]), None);
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert!(is_before("8.2.35", "8.4"));
        assert!(is_before("8.4", "8.10"));
        assert!(!is_before("8.4.1", "8.4"));
        assert!(!is_before("9.0", "8.4"));
    }

    #[test]
    fn the_path_says_the_version_then_the_name_then_what_was_built() {
        let config = |path| version_of(Some(path), "php-fpm8.3");
        assert_eq!(config("/etc/php/8.4/fpm/php-fpm.conf"), "8.4");
        assert_eq!(
            config("/srv/php/etc/php/8.4/fpm.conf"),
            "8.3",
            "the first `php` decides"
        );
        assert_eq!(config("/etc/php/new/fpm/php-fpm.conf"), "8.3");
        assert_eq!(config("php-fpm.conf"), "8.3");
        assert_eq!(version_of(None, "php-fpm8.4"), "8.4");
        for program in ["php-fpm", "forkyard-fpm", "php-fpm-8.4", "php-fpm8", "8.4"] {
            assert_eq!(version_of(None, program), newest(), "{program}");
        }
    }
}
