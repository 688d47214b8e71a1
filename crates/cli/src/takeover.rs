//! The command line's part of an upgrade.

use super::{EXIT_CONFIG, EXIT_SOFTWARE, program_directory};
use forkyard_config::Config;
use forkyard_daemon::handover::{self, InheritedState};
use forkyard_daemon::keeper::{self, KeeperSettings};
use forkyard_daemon::master::{REHEARSAL_ANSWER, REHEARSAL_OPTION};
use forkyard_host::logs::Log;
use forkyard_sys::{invocation, process};
use std::ffi::OsString;
use std::fmt::Display;
use std::os::fd::RawFd;
use std::path::Path;
use std::process::ExitCode;

/// Returns this process's arguments without the rehearsal option, and the descriptor in that option.
pub(super) fn arguments() -> (Vec<OsString>, Option<RawFd>) {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let document = arguments
        .get(1)
        .and_then(|argument| argument.to_str()?.strip_prefix(REHEARSAL_OPTION)?.parse().ok());
    if document.is_some() {
        arguments.remove(1);
    }
    (arguments, document)
}

/// Checks that this program can read the handover document and the configuration.
pub(super) fn rehearse<E: Display>(document: RawFd, load: impl FnOnce() -> Result<Config, E>) -> ExitCode {
    if let Err(problem) = handover::rehearse(document) {
        eprintln!("the hand-over state can't be read: {problem}");
        return ExitCode::from(EXIT_SOFTWARE);
    }
    let config = match load() {
        Ok(config) => config,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    let preloader = program_directory().join("forkyard-php");
    let needs_it = config.pools.iter().any(|pool| pool.application.php().is_some());
    if needs_it && !preloader.exists() {
        eprintln!("{} is missing", preloader.display());
        return ExitCode::from(EXIT_CONFIG);
    }
    println!("{REHEARSAL_ANSWER}");
    ExitCode::SUCCESS
}

/// Becomes the keeper of a daemon with this configuration.
pub(super) fn keep(config: &Path, background: bool) -> ExitCode {
    Log::install();
    let Some(invocation) = invocation::get() else {
        log::error!("it is not known where the program is");
        return ExitCode::from(EXIT_SOFTWARE);
    };
    let failed = |error: &forkyard_sys::Error| {
        log::error!("the keeper can't go on: {error}");
        ExitCode::from(EXIT_SOFTWARE)
    };
    let launcher = match background
        .then(|| process::daemonize(i32::from(EXIT_SOFTWARE)))
        .transpose()
    {
        Ok(launcher) => launcher,
        Err(error) => return failed(&error),
    };
    let settings = KeeperSettings {
        program: invocation.path.clone(),
        arguments: vec![
            invocation.path.clone().into(),
            "run".into(),
            "-c".into(),
            config.into(),
            "-F".into(),
        ],
        launcher,
    };
    match keeper::run(settings) {
        Ok(code) => ExitCode::from(code),
        Err(error) => failed(&error),
    }
}

/// Returns the configuration, or the inherited one: an error in a file must not end a running daemon.
pub(super) fn or_before(config: Option<Config>, inherited: &InheritedState) -> Option<Config> {
    if config.is_some() {
        return config;
    }
    let before = inherited.config.clone().filter(|_| inherited.document.is_some());
    if before.is_some() {
        log::error!("the configuration can't be read, the one before it stays in force");
    }
    before
}
