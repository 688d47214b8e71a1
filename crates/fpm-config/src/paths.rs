//! Base directories of relative paths.

use super::journal::Journal;

/// The default prefix, replaced by `-p`.
pub const PREFIX: &str = "/usr";
/// The default directory of pid file and log.
pub(super) const STATE: &str = "/var";

pub(super) fn directory(version: &str) -> String {
    format!("/etc/php/{version}/fpm")
}

pub(super) fn config(version: &str) -> String {
    format!("{}/php-fpm.conf", directory(version))
}

pub(super) fn under(path: &str, directory: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{directory}/{path}")
    }
}

/// Prepends the pool's and the global prefix to a relative path.
pub(super) fn of_pool(path: &str, pool_prefix: Option<&str>, prefix: Option<&str>) -> String {
    let global = prefix.unwrap_or(PREFIX);
    under(&under(path, pool_prefix.unwrap_or(global)), global)
}

/// Expands a leading `$prefix`. Elsewhere, reports it and keeps the path.
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
