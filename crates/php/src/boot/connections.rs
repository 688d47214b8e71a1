//! Connections that the boot leaves open. Workers are forked of the process: all would speak over the same one.

use super::Failure;
use forkyard_config::BootConnections;
use forkyard_sys::{fd, shared_mappings, socket};
use nix::sys::socket::SockType;
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

const MARK: &str = "socket:";

/// What was open before the boot.
pub(super) struct Connections {
    rule: BootConnections,
    before: BTreeSet<(RawFd, String)>,
}

impl Connections {
    pub(super) fn before_boot(rule: BootConnections) -> Connections {
        Connections {
            rule,
            before: sockets().into_iter().collect(),
        }
    }

    /// What the boot has opened and not closed; or it has failed by that.
    pub(super) fn after_boot(&self) -> Result<LeftOpen, Failure> {
        let mut left: Vec<RawFd> = sockets()
            .into_iter()
            .filter(|socket| !self.before.contains(socket))
            .map(|(number, _)| number)
            .collect();
        left.sort_unstable();
        if left.is_empty() || self.rule == BootConnections::Keep {
            return Ok(LeftOpen(Vec::new()));
        }
        let names: Vec<String> = left.iter().map(|number| name(*number)).collect();
        let names = names.join(", ");
        if self.rule == BootConnections::Refuse {
            return Err(Failure {
                summary: format!("the boot has left connections open: {names}"),
                solution: "Close them before the first forkyard_handle_request(), or write boot_connections = \"cut\".",
                details: None,
            });
        }
        log::warn!(
            "the boot has left connections open, which workers find closed: {names}. Close them before the first \
             forkyard_handle_request()"
        );
        Ok(LeftOpen(left))
    }
}

/// Descriptors that workers are not to use.
pub(super) struct LeftOpen(Vec<RawFd>);

impl LeftOpen {
    /// In a worker: closes this side without a word to the other, which is the preloader's still. Who uses a descriptor finds
    /// that its connection is gone.
    pub(super) fn cut(&self) {
        if self.0.is_empty() {
            return;
        }
        let dead = match dead_socket() {
            Ok(dead) => dead,
            Err(error) => {
                log::error!("{error}");
                forkyard_sys::process::exit_now(forkyard_worker::runtime::php::protocol::EXIT_START_FAILED)
            }
        };
        for number in &self.0 {
            // SAFETY: what has opened it expects a connection, and finds one that has ended.
            if let Err(error) = unsafe { shared_mappings::replace_descriptor(*number, &dead) } {
                log::error!("{error}");
            }
        }
    }
}

fn dead_socket() -> Result<OwnedFd, forkyard_sys::Error> {
    let (one, other) = fd::socket_pair(SockType::Stream)?;
    drop(other);
    Ok(one)
}

fn sockets() -> Vec<(RawFd, String)> {
    match fd::open_ones() {
        Ok(mut all) => {
            all.retain(|(_, target)| target.starts_with(MARK));
            all
        }
        // In a chroot there is no /proc.
        Err(_) => fd::open_sockets()
            .into_iter()
            .map(|(number, inode)| (number, format!("{MARK}[{inode}]")))
            .collect(),
    }
}

/// Where a connection leads.
fn name(number: RawFd) -> String {
    // SAFETY: it was found open just now, in a process with one thread.
    let open = unsafe { BorrowedFd::borrow_raw(number) };
    socket::peer_name(open).unwrap_or_else(|| format!("descriptor {number}"))
}
