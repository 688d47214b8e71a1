//! forkyard-php, the preloader of PHP pools: starts PHP once and forks workers that have it ready. The only program that
//! knows libphp.
//!
//! The master starts it with one end of a socket as descriptor 3, over which the two exchange lines
//! ([`forkyard_worker::runtime::php::protocol`]). It has one thread. Its workers are the master's children, not its own, so
//! they outlive it.

mod boot;
mod ffi;
mod ini_snapshot;
mod preloader;
mod report;
mod sapi;
mod serving;
mod shims;
mod warm;
mod zygote;

use std::process::ExitCode;

/// The program. To be called before the process has a thread.
pub fn main() -> ExitCode {
    forkyard_sys::title::prepare();
    forkyard_sys::signal::ignore_pipe();
    if std::env::args().nth(1).as_deref() == Some(forkyard_worker::slowlog::OPTION) {
        return ExitCode::from(forkyard_worker::slowlog::run::run());
    }
    if std::env::args().nth(1).as_deref() == Some("--versions") {
        return report::versions();
    }
    if std::env::args().nth(1).as_deref() == Some("--start") {
        return report::start();
    }
    match report::asked() {
        Some(question) => report::answer(question),
        None => preloader::run(),
    }
}
