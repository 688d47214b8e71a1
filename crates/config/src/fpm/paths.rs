//! What relative paths are relative to.

use super::journal::Journal;

/// Where the installation is; what `-p` replaces.
pub const PREFIX: &str = "/usr";
/// Where its changing files are: the pid file and the log, unless `-p` is given.
pub(super) const STATE: &str = "/var";

/// Where the configuration of a version of PHP is.
pub(super) fn directory(version: &str) -> String {
    format!("/etc/php/{version}/fpm")
}

/// The file that is read when none is named.
pub(super) fn config(version: &str) -> String {
    format!("{}/php-fpm.conf", directory(version))
}

/// A path under a directory, unless it is absolute.
pub(super) fn under(path: &str, directory: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{directory}/{path}")
    }
}

/// A pool's path: under the pool's prefix, and that under the global one.
pub(super) fn of_pool(path: &str, pool_prefix: Option<&str>, prefix: Option<&str>) -> String {
    let global = prefix.unwrap_or(PREFIX);
    under(&under(path, pool_prefix.unwrap_or(global)), global)
}

/// A pool's path in which `$prefix` may stand, at the start only; elsewhere it is said, and the path stays as it is.
pub(super) fn expand_prefix(
    path: &str,
    pool_prefix: Option<&str>,
    prefix: Option<&str>,
    journal: &mut Journal,
) -> String {
    match path.match_indices("$prefix").map(|(at, _)| at).last() {
        Some(0) => {
            let rest = &path["$prefix".len()..];
            let directory = pool_prefix.or(prefix).unwrap_or(PREFIX);
            let path = if rest.is_empty() {
                directory.to_owned()
            } else {
                format!("{directory}/{rest}")
            };
            under(&path, prefix.unwrap_or(PREFIX))
        }
        Some(_) => {
            journal.error("'$prefix' must be use at the beginning of the value");
            path.to_owned()
        }
        None => of_pool(path, pool_prefix, prefix),
    }
}
