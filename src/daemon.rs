//! Becomes the daemon: in the background if it is to, with its programs and streams.

use crate::config::{Config, LogTarget};
use crate::estate::Heritage;
use crate::logs::is_stderr;
use crate::master::{self, Handlers, Persona, RunError};
use crate::sys::{self, fd, process};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// sysexits.h, EX_SOFTWARE: the exit code of a program whose daemon ended before it was ready.
pub(crate) const EXIT_SOFTWARE: u8 = 70;
/// Where forkyard's programs are if it is not known where this one is.
const PROGRAMS: &str = "/usr/libexec/forkyard";

/// Runs the daemon until it is told to stop. `programs`: the directory of forkyard's own programs.
///
/// # Errors
/// It did not start.
pub(crate) fn run(
    config: Config,
    handlers: Handlers,
    persona: Persona,
    background: bool,
    programs: &Path,
    heritage: Heritage,
) -> Result<(), RunError> {
    // A program that takes over is the daemon already.
    let launcher = (background && heritage.document.is_none() && heritage.problem.is_none())
        .then(|| process::daemonize(i32::from(EXIT_SOFTWARE)))
        .transpose()
        .map_err(RunError::Background)?;
    let is_seen = config.global.error_log == LogTarget::Stderr;
    let logs_to_stderr = needs_stderr(&config);
    let ready = move || {
        if let Some(launcher) = launcher {
            if !logs_to_stderr {
                if let Err(error) = fd::let_go_of_standard_streams() {
                    log::warn!("the standard streams stay open: {error}");
                }
            }
            launcher.report(0);
            // The process that started it may wait for the end of these.
            if let Err(error) = leave_streams(is_seen) {
                log::error!("the standard streams stay open: {error}");
            }
        }
    };
    master::run(config, handlers, persona, programs, heritage, ready)
}

/// Closes the standard streams that the daemon was started with; standard error only if nothing is logged there.
fn leave_streams(logs_to_stderr: bool) -> sys::Result<()> {
    let null = fd::null()?;
    let stderr = std::io::stderr();
    let error = if logs_to_stderr {
        stderr.as_fd()
    } else {
        null.as_fd()
    };
    fd::replace_standard_streams(null.as_fd(), Some((null.as_fd(), error)))
}

/// Whether a log goes to the stream that this process was started with.
fn needs_stderr(config: &Config) -> bool {
    let is_log = match &config.global.error_log {
        LogTarget::Stderr => true,
        LogTarget::File(path) => is_stderr(path),
        LogTarget::Syslog { .. } => false,
    };
    let mut access = config.pools.iter().filter_map(|pool| pool.access.as_ref());
    is_log || access.any(|access| is_stderr(&access.path))
}

/// Where this program's executable is.
pub(crate) fn program_directory() -> PathBuf {
    let own = std::env::current_exe().ok();
    own.as_deref()
        .and_then(Path::parent)
        .map_or_else(|| PathBuf::from(PROGRAMS), Path::to_owned)
}
