//! Daemonization.

use super::exit_now;
use super::fork::{Side, fork};
use crate::error::{Named, Result};
use crate::{fd, signal, socket};
use nix::sys::signal::SigSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Reports to the process that called [`daemonize`].
#[derive(Debug)]
pub struct Launcher {
    pipe: OwnedFd,
}

/// Continues in a child with a new session. The original process exits with the code of [`Launcher::report`], or with
/// `otherwise` after ten seconds.
///
/// # Errors
/// pipe2(2), fork(2) or setsid(2).
pub fn daemonize(otherwise: i32) -> Result<Launcher> {
    let (reader, writer) = fd::pipe(false)?;
    // SAFETY: called at start, with one thread.
    match unsafe { fork() }? {
        Side::Child => {
            signal::restore(&SigSet::empty());
            drop(reader);
            nix::unistd::setsid().named("setsid", "")?;
            Ok(Launcher { pipe: writer })
        }
        Side::Parent(_) => {
            drop(writer);
            let mut code = [0; 1];
            let limit = Duration::from_secs(10);
            let told = socket::wait(reader.as_fd(), socket::Readiness::Readable, limit);
            match (told, nix::unistd::read(&reader, &mut code)) {
                (Ok(true), Ok(1)) => exit_now(i32::from(code[0])),
                _ => exit_now(otherwise),
            }
        }
    }
}

impl Launcher {
    /// Makes the original process exit with this code.
    pub fn report(self, code: u8) {
        let _ = nix::unistd::write(&self.pipe, &[code]);
    }
}
