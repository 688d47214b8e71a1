//! Decides which pools share a zygote, and which settings the zygote starts with. A pool's other settings are applied
//! in its workers after the fork.

use super::application::{Php, Preloading, RequestSettings};
use super::jobs::JOBS_VARIABLE;
use super::model::{Environment, Pool};
use std::time::Duration;

const START_VARIABLES: [&str; 3] = ["PHPRC", "PHP_INI_SCAN_DIR", JOBS_VARIABLE];

/// Whether PHP needs a php.ini setting before it starts: extensions, and settings of extensions that share memory
/// between workers.
pub fn is_start_setting(name: &str) -> bool {
    let is_of_memory = |prefix| name.starts_with(prefix);
    name == "extension"
        || name == "zend_extension"
        || ["opcache.", "apc.", "yac."].into_iter().any(is_of_memory)
}

/// OPcache settings that PHP reads while it serves, so that each worker can have its own. The others determine whether
/// there is an OPcache, and its memory's size and layout. PHP would accept them late, with wrong results.
const LATE_SETTINGS: [&str; 19] = [
    "opcache.consistency_checks",
    "opcache.dups_fix",
    "opcache.error_log",
    "opcache.file_cache",
    "opcache.file_cache_consistency_checks",
    "opcache.file_cache_read_only",
    "opcache.file_update_protection",
    "opcache.force_restart_timeout",
    "opcache.log_verbosity_level",
    "opcache.max_file_size",
    "opcache.max_wasted_percentage",
    "opcache.optimization_level",
    "opcache.record_warnings",
    "opcache.restrict_api",
    "opcache.revalidate_freq",
    "opcache.revalidate_path",
    "opcache.save_comments",
    "opcache.use_cwd",
    "opcache.validate_timestamps",
];
const LATE_PREFIX: &str = "opcache.validate_";

/// Whether a zygote needs a php.ini setting before it starts. Pools with different values need separate zygotes.
pub fn is_zygote_setting(name: &str) -> bool {
    is_start_setting(name) && !LATE_SETTINGS.contains(&name) && !name.starts_with(LATE_PREFIX)
}

pub fn wants_zygote(pool: &Pool) -> bool {
    let php = pool.application.php();
    php.is_some_and(|php| php.preloading == Preloading::Zygote)
}

/// Why a pool can't use a zygote, and the remedy; `None` if it can.
pub fn zygote_refusal(pool: &Pool) -> Option<(String, &'static str)> {
    let php = pool.application.php()?;
    let own = "write preloader = \"own\"";
    let refused = |key: &str, remedy| {
        Some((
            format!("a pool with {key} can't have workers of a zygote"),
            remedy,
        ))
    };
    if pool.confine.private_tmp {
        return refused(
            "confine.private_tmp",
            "leave out confine.private_tmp, or write preloader = \"own\"",
        );
    }
    if php.worker.is_some() {
        return refused("worker", own);
    }
    let settings = php
        .php_value
        .iter()
        .chain(&php.php_admin_value)
        .chain(&php.defines);
    let mut preloads =
        settings.filter(|(name, value)| name == PRELOAD && !value.trim_matches(['"', '\'']).is_empty());
    preloads.next().and_then(|_| refused(PRELOAD, own))
}

/// Prefixes of variables that the dynamic linker and PHP's allocator read at the start of a process. Set in a forked
/// worker they have no effect.
const EARLY_VARIABLES: [&str; 2] = ["LD_", "USE_ZEND_"];

/// Chooses the preloader of a PHP pool whose configuration names none: a zygote, if the pool's user is not root and no
/// setting needs a separate preloader. `is_root`: the daemon can start workers as any user.
pub fn choose(pool: &mut Pool, is_root: bool) {
    let is_root_s = |user: &str| user == "root" || user == "0";
    let is_users =
        pool.applications.is_some() || pool.account.user.as_deref().is_some_and(|user| !is_root_s(user));
    let is_early = |name: &String| EARLY_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
    let may = is_root && is_users && !pool.environment.env.iter().any(|(name, _)| is_early(name));
    if may && zygote_refusal(pool).is_none() {
        if let Some(php) = pool.application.php_mut() {
            php.preloading = Preloading::Zygote;
        }
    }
}

pub(super) const PRELOAD: &str = "opcache.preload";

pub const ZYGOTE: &str = "zygote";

pub fn label(pool: &Pool) -> &str {
    match wants_zygote(pool) {
        true => ZYGOTE,
        false => &pool.name,
    }
}

/// Returns the settings that a zygote starts with: of the pool's, those that PHP's start depends on. Pools with equal
/// results can share a zygote.
pub fn common(pool: &Pool) -> Pool {
    let mut application = pool.application.clone();
    if let Some(php) = application.php_mut() {
        *php = common_php(php);
    }
    Pool {
        title: pool.title.clone(),
        environment: Environment {
            clear_env: pool.environment.clear_env,
            env: START_VARIABLES
                .into_iter()
                .filter_map(|name| Some((name.to_owned(), variable(pool, name)?.to_owned())))
                .collect(),
            ..Environment::default()
        },
        application,
        ..Pool::default()
    }
}

fn common_php(php: &Php) -> Php {
    Php {
        warm_up: 0,
        warm_up_time: Duration::ZERO,
        limit_extensions: Vec::new(),
        script_root: None,
        request_settings: RequestSettings::None,
        php_value: Vec::new(),
        php_admin_value: common_settings(php),
        preloader_idle_timeout: Duration::ZERO,
        opcache_cache: None,
        ..php.clone()
    }
}

/// The settings that a zygote needs, sorted by name. Several values of one name stay in the order written.
fn common_settings(php: &Php) -> Vec<(String, String)> {
    let all = php.php_value.iter().chain(&php.php_admin_value);
    let mut settings: Vec<(String, String)> =
        all.filter(|(name, _)| is_zygote_setting(name)).cloned().collect();
    settings.sort_by(|(a, _), (b, _)| a.cmp(b));
    settings
}

fn variable<'p>(pool: &'p Pool, name: &str) -> Option<&'p str> {
    let found = pool.environment.env.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}
