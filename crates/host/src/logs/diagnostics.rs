//! What the programs tell of themselves, on standard error, if the environment asks for it: the daemon until its log is open,
//! its tools all the time.

use env_logger::{Builder, Logger};

/// Says what is wanted, as env_logger understands it: `debug`, or `forkyard::config=debug`.
const VARIABLE: &str = "FORKYARD_LOG";

/// What takes the records that are wanted; `None` if the environment does not ask.
pub(super) fn wanted() -> Option<Logger> {
    std::env::var_os(VARIABLE)?;
    Some(Builder::from_env(VARIABLE).build())
}

/// In a program that is not the daemon and has no log: writes the records that are wanted.
pub fn diagnose() {
    if let Some(logger) = wanted() {
        let most = logger.filter();
        // Where there is a log already, it knows what is wanted.
        if log::set_boxed_logger(Box::new(logger)).is_ok() {
            log::set_max_level(most);
        }
    }
}
