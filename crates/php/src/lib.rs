//! forkyard-php, the preloader of PHP pools: starts PHP once and forks workers. The only program that loads libphp.
//!
//! Descriptor 3 is a socket to the master, which carries lines ([`forkyard_runtimes::php::protocol`]). The
//! process has one thread. Its workers are the master's children, so they outlive it.

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

/// Runs the program. Call it before the process has another thread.
pub fn main() -> ExitCode {
    forkyard_sys::title::prepare();
    forkyard_sys::signal::ignore_pipe();
    if std::env::args().nth(1).as_deref() == Some(forkyard_slowlog::OPTION) {
        return ExitCode::from(forkyard_slowlog::process::run());
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
