//! Errors that php-fpm's workers write to their standard error, and forkyard's to the log.

use crate::config::{Address, Pool};
use std::io::Write;

/// Says that something is wrong. Where standard error is caught in php-fpm's place, the log has the line from there, in the
/// form in which programs look for it.
pub(super) fn error(pool: &Pool, text: &str) {
    if pool.title == "php-fpm" && pool.catch_workers_output {
        // Nothing can be done if the master does not listen.
        let _ = writeln!(std::io::stderr(), "ERROR: {text}");
    } else {
        log::error!("{text}");
    }
}

/// What a worker has to say of its pool when it begins.
pub(super) fn at_begin(pool: &Pool) {
    if pool.catch_workers_output && !matches!(pool.listen.address, Address::Unix(_)) {
        for text in pool.listen.client_complaints() {
            error(pool, &text);
        }
    }
}
