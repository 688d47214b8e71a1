//! Diagnostics on standard error, if the environment requests them: from the daemon until its log is open, from the
//! tools always.

use env_logger::{Builder, Logger};

/// In env_logger's syntax: `debug`, or `forkyard::config=debug`.
const VARIABLE: &str = "FORKYARD_LOG";

pub(super) fn wanted() -> Option<Logger> {
    std::env::var_os(VARIABLE)?;
    Some(Builder::from_env(VARIABLE).build())
}

/// Enables diagnostics in a program without a log.
pub fn diagnose() {
    if let Some(logger) = wanted() {
        let most = logger.filter();
        // An installed log sets its own level.
        if log::set_boxed_logger(Box::new(logger)).is_ok() {
            log::set_max_level(most);
        }
    }
}
