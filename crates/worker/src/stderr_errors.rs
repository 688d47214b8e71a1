//! Errors that php-fpm's workers write to standard error, and forkyard's to the log.

use forkyard_config::{Address, Pool};
use std::io::Write;

/// Logs an error. In php-fpm mode with caught output it goes to standard error, in the format that programs look for.
pub(super) fn error(pool: &Pool, text: &str) {
    if pool.title == "php-fpm" && pool.logs.catch_workers_output {
        let _ = writeln!(std::io::stderr(), "ERROR: {text}");
    } else {
        log::error!("{text}");
    }
}

pub(super) fn at_begin(pool: &Pool) {
    if pool.logs.catch_workers_output && !matches!(pool.listen.address, Address::Unix(_)) {
        for text in pool.listen.client_complaints() {
            error(pool, &text);
        }
    }
}
