//! Connections that the boot leaves open, which forked workers would share.

use super::BootFailure;
use forkyard_config::BootConnections;
use forkyard_sys::{fd, shared_mappings, socket};
use nix::sys::socket::SockType;
use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

const MARK: &str = "socket:";

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

    pub(super) fn after_boot(&self) -> Result<LeftOpen, BootFailure> {
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
            return Err(BootFailure {
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

pub(super) struct LeftOpen(Vec<RawFd>);

impl LeftOpen {
    /// In a worker: closes its copies without affecting the preloader's connection. Users of a descriptor find it
    /// disconnected.
    pub(super) fn cut(&self) {
        if self.0.is_empty() {
            return;
        }
        let dead = match dead_socket() {
            Ok(dead) => dead,
            Err(error) => {
                log::error!("{error}");
                forkyard_sys::process::exit_now(forkyard_runtimes::php::protocol::EXIT_START_FAILED)
            }
        };
        for number in &self.0 {
            // SAFETY: its owner expects a connection and finds a closed one.
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
        Err(_) => fd::open_sockets()
            .into_iter()
            .map(|(number, inode)| (number, format!("{MARK}[{inode}]")))
            .collect(),
    }
}

fn name(number: RawFd) -> String {
    // SAFETY: it was open just now, and the process has one thread.
    let open = unsafe { BorrowedFd::borrow_raw(number) };
    socket::peer_name(open).unwrap_or_else(|| format!("descriptor {number}"))
}
