//! PHP constants in a php-fpm configuration.

use forkyard_config::php::is_before;

/// A constant's value. Unknown words stand for themselves.
pub(super) fn value(name: &str) -> Option<&'static str> {
    let found = CONSTANTS.iter().find(|(constant, _)| *constant == name);
    found.map(|(_, value)| *value)
}

pub(super) fn of_version(name: &str, version: &str) -> Option<String> {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    let (major, minor, release) = (part(), part(), part());
    match name {
        // 8.4 removed E_STRICT.
        "E_ALL" if !is_before(version, "8.4") => Some("30719".to_owned()),
        "E_ALL" => Some("32767".to_owned()),
        "PHP_MAJOR_VERSION" => Some(major.to_string()),
        "PHP_MINOR_VERSION" => Some(minor.to_string()),
        "PHP_VERSION" => Some(version.to_owned()),
        "PHP_VERSION_ID" => Some((major * 10_000 + minor * 100 + release).to_string()),
        "PHP_RELEASE_VERSION" => Some(release.to_string()),
        _ => None,
    }
}

const CONSTANTS: &[(&str, &str)] = &[
    ("E_ERROR", "1"),
    ("E_WARNING", "2"),
    ("E_PARSE", "4"),
    ("E_NOTICE", "8"),
    ("E_CORE_ERROR", "16"),
    ("E_CORE_WARNING", "32"),
    ("E_COMPILE_ERROR", "64"),
    ("E_COMPILE_WARNING", "128"),
    ("E_USER_ERROR", "256"),
    ("E_USER_WARNING", "512"),
    ("E_USER_NOTICE", "1024"),
    ("E_STRICT", "2048"),
    ("E_RECOVERABLE_ERROR", "4096"),
    ("E_DEPRECATED", "8192"),
    ("E_USER_DEPRECATED", "16384"),
    ("PHP_OS", "Linux"),
    ("PHP_OS_FAMILY", "Linux"),
    ("PHP_SAPI", "fpm-fcgi"),
    ("PHP_INT_MAX", "9223372036854775807"),
    ("PHP_INT_SIZE", "8"),
    ("DIRECTORY_SEPARATOR", "/"),
    ("PATH_SEPARATOR", ":"),
    ("M_PI", "3.1415926535898"),
];
