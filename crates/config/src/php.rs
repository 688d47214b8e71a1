//! Which version of PHP is meant.

/// The version where nothing says which: the newest one that forkyard-php was built for.
pub fn newest() -> &'static str {
    forkyard_php_shim::NEWEST
}

/// The version that is meant by a configuration file's path (`/etc/php/8.4/fpm/php-fpm.conf`), or else by the name that
/// the program was called by (`php-fpm8.4`).
pub fn version_of(config: Option<&str>, program: &str) -> String {
    config
        .and_then(of_path)
        .or_else(|| of_name(program))
        .unwrap_or(newest())
        .to_owned()
}

/// The version in a path: a directory of that name below one named `php`.
pub fn of_path(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/php/")?;
    let (version, _) = rest.split_once('/')?;
    is_version(version).then_some(version)
}

fn of_name(program: &str) -> Option<&str> {
    let (_, version) = program.rsplit_once("-fpm")?;
    is_version(version).then_some(version)
}

/// Whether a version (`8.2`, `8.2.35`) is older than another.
pub fn is_before(version: &str, other: &str) -> bool {
    let numbers = |text: &str| {
        let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next(), parts.next())
    };
    numbers(version) < numbers(other)
}

/// Whether a text is a major and a minor number.
pub fn is_version(text: &str) -> bool {
    let number = |part: &str| (1..=3).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.')
        .is_some_and(|(major, minor)| number(major) && number(minor))
}

#[cfg(test)]
mod tests {
    use super::{is_before, newest, version_of};

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
