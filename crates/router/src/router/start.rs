//! Turns a process into a router.

use super::event_loop::Router;
use super::settings::PoolSettings;
use forkyard_host::confine::{self, Helper};
use forkyard_host::logs::Log;
use forkyard_protocol::router::ToRouter;
use forkyard_sys::fd::receive_with;
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::{Error, socket, title};
use nix::errno::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The exit code after a failure (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;
const BUFFER_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub struct RouterStart {
    pub title: String,
    /// The socket to the master ([`forkyard_protocol::router`]).
    pub master: OwnedFd,
    pub messages: OwnedFd,
    /// Bytes from the master that must be read.
    pub heartbeat: Option<OwnedFd>,
    /// The user to become. `None`: the master's.
    pub identity: Option<Identity>,
    pub descriptor_limit: Option<(u64, u64)>,
    /// All applications run as one user. Otherwise connections are not reused: an application with a copy of the
    /// descriptor could read later requests to others.
    pub one_user: bool,
}

impl RouterStart {
    pub fn descriptors(&self) -> [RawFd; 2] {
        [self.master.as_raw_fd(), self.messages.as_raw_fd()]
    }
}

/// Runs the router in its own process and returns the exit code. The process must be single-threaded, with default
/// signals and only the given descriptors.
pub fn run(start: RouterStart) -> i32 {
    title::set(&start.title);
    Log::install().send_to_master(start.messages);
    let served = become_user(start.identity.as_ref(), start.descriptor_limit)
        .and_then(|()| serve(start.master, start.heartbeat, start.one_user));
    match served {
        Ok(()) => 0,
        Err(error) => {
            log::error!("the router can't go on: {error}");
            EXIT_SOFTWARE
        }
    }
}

fn become_user(identity: Option<&Identity>, descriptor_limit: Option<(u64, u64)>) -> Result<(), Error> {
    if let Some((soft, hard)) = descriptor_limit {
        identity::limit_descriptors(soft, hard)?;
    }
    if let (Some(identity), true) = (identity, identity::is_root()) {
        identity::become_user(identity)?;
        identity::forbid_dumps()?;
    }
    identity::give_up_new_privileges()?;
    if let Err(missing) = confine::keep_to(Helper::Router) {
        log::debug!("the router is confined less than it could be: {missing}");
    }
    Ok(())
}

/// Serves until the master sends `Finish` or exits.
///
/// # Errors
/// A system call failed; the process must exit.
pub fn serve(master: OwnedFd, heartbeat: Option<OwnedFd>, one_user: bool) -> Result<(), Error> {
    let wrong = |what: &str| Error::new("recvmsg", format!("the master's message: {what}"), Errno::EBADMSG);
    let mut buffer = vec![0; BUFFER_BYTES];
    let wait = socket::Readiness::Readable;
    while !socket::wait(master.as_fd(), wait, Duration::from_secs(3600))? {}
    let received = receive_with(master.as_fd(), &mut buffer, false)?;
    if received.bytes == 0 {
        return Ok(());
    }
    let message =
        serde_json::from_slice(&buffer[..received.bytes]).map_err(|error| wrong(&error.to_string()))?;
    let ToRouter::Settings(pool) = message else {
        return Err(wrong("the settings come first"));
    };
    let descriptors: [OwnedFd; 2] = received
        .descriptors
        .try_into()
        .map_err(|_| wrong("the number of descriptors"))?;
    let [listener, inspector] = descriptors;
    let settings = PoolSettings::new(*pool, one_user).ok_or_else(|| wrong("no applications"))?;
    Router::new((master, heartbeat), listener, inspector, settings, buffer)?.serve()
}
