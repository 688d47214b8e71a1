//! Going to the background.

use super::exit_now;
use super::fork::{Side, fork};
use crate::error::{Named, Result};
use crate::{fd, signal, socket};
use nix::sys::signal::SigSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// What [`daemonize`] returns in the process that goes on.
#[derive(Debug)]
pub struct Launcher {
    pipe: OwnedFd,
}

/// Goes to the background: the caller goes on in a child with a session of its own; the process that was started waits
/// until [`Launcher::report`] and exits with the code given there, or with `otherwise` after ten seconds or if the
/// child ends without a word.
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
    /// Lets the process that was started exit with this code.
    pub fn report(self, code: u8) {
        let _ = nix::unistd::write(&self.pipe, &[code]);
    }
}
