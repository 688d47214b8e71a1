//! Why the daemon did not start, in php-fpm's words.

use crate::{EXIT_CONFIG, EXIT_SOFTWARE, RunFailure};
use forkyard_daemon::master::{ApplyError, PoolFault, RunError};
use forkyard_host::listen::ListenError;
use nix::errno::Errno;
use std::io;

/// The message about an error. When PHP itself does not start, php-fpm is not at fault and exits with another code.
pub(super) fn of(error: &RunError) -> RunFailure {
    match error {
        RunError::NoWorker => RunFailure {
            lines: vec![cause(error)],
            code: EXIT_SOFTWARE,
        },
        _ => RunFailure {
            lines: vec![cause(error), "FPM initialization failed".to_owned()],
            code: EXIT_CONFIG,
        },
    }
}

fn cause(error: &RunError) -> String {
    match error {
        RunError::Apply(ApplyError::Pool(pool, PoolFault::Listen(error))) => listen(pool, error),
        RunError::Pid(path, error) => format!(
            "Unable to create the PID file ({}).: {}",
            path.display(),
            os(error)
        ),
        error => error.to_string(),
    }
}

fn listen(pool: &str, error: &ListenError) -> String {
    match error {
        ListenError::Taken { address, .. } if address.starts_with('/') => {
            format!("Another FPM instance seems to already listen on {address}")
        }
        ListenError::Taken { address, .. } => bind(address, Errno::EADDRINUSE),
        ListenError::System(error) if error.call == "bind" => bind(&error.subject, error.errno),
        ListenError::System(error) if error.call == "listen" => {
            let (address, errno) = (&error.subject, numbered(error.errno));
            format!("failed to listen to address '{address}': {errno}")
        }
        ListenError::System(error) if error.call == "chown" => {
            let (path, errno) = (&error.subject, numbered(error.errno));
            format!("[pool {pool}] failed to chown() the socket '{path}': {errno}")
        }
        error => format!("[pool {pool}] {error}"),
    }
}

fn bind(address: &str, errno: Errno) -> String {
    let errno = numbered(errno);
    format!("unable to bind listening socket for address '{address}': {errno}")
}

fn os(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => numbered(Errno::from_raw(number)),
        None => error.to_string(),
    }
}

/// Returns strerror(3)'s text and errno.
fn numbered(errno: Errno) -> String {
    format!("{} ({})", errno.desc(), errno as i32)
}
