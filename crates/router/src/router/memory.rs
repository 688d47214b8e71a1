//! What connections cost in memory, all together.
//!
//! A request that comes in pieces is read until its parameters are complete, and one that waits keeps what was read of it. Each
//! is bounded, but there may be as many as there are descriptors. So there is a budget for all: beyond it the connections whose
//! requests have been incomplete for the longest are closed. What was used is given back to the kernel, which free(3) alone
//! does not do.

use super::client::Client;
use super::run::Router;
use super::state::ClientState;
use crate::sys::memfile::give_back;

/// The most memory for what was read of connections.
const BUDGET: usize = 32 << 20;
/// Memory is given back when at least so much of it has been used and less than a quarter of that is left.
const WORTH_GIVING_BACK: usize = 8 << 20;

/// What was read of all connections.
#[derive(Debug, Default)]
pub(super) struct Memory {
    used: usize,
    /// The most since memory was last given back.
    peak: usize,
    /// Connections were closed for it, and the log says so.
    is_said: bool,
}

impl Memory {
    /// A connection has this much in place of what it had.
    fn change(&mut self, before: usize, now: usize) {
        self.used = self.used.saturating_sub(before) + now;
        self.peak = self.peak.max(self.used);
    }

    fn is_over(&self) -> bool {
        self.used > BUDGET
    }

    /// Whether it is time to give memory back; that begins a new peak.
    fn gives_back(&mut self) -> bool {
        let is_due = self.peak >= WORTH_GIVING_BACK && self.used < self.peak / 4;
        if is_due {
            (self.peak, self.is_said) = (self.used, false);
        }
        is_due
    }
}

impl Router {
    /// Counts what a connection has, and makes room if it is too much for all.
    pub(super) fn count_memory(&mut self, id: u64) {
        let Some(client) = self.clients.get(id) else {
            return;
        };
        let now = held(client);
        let before = std::mem::replace(&mut client.memory, now);
        self.memory.change(before, now);
        while self.memory.is_over() && self.close_incomplete() {}
    }

    /// A connection is closed.
    pub(super) fn forget_memory(&mut self, client: &Client) {
        self.memory.change(client.memory, 0);
    }

    /// Gives back what is not needed any more.
    pub(super) fn trim_memory(&mut self) {
        if self.memory.gives_back() {
            give_back();
        }
    }

    /// Closes the connection whose request has been incomplete for the longest. `false`: there is none.
    fn close_incomplete(&mut self) -> bool {
        let due: Vec<u64> = self.timers.iter().map(|(_, id)| *id).collect();
        for id in due {
            let is_incomplete =
                |client: &&mut Client| client.state() == ClientState::Partial && client.memory > 0;
            if self.clients.get(id).filter(is_incomplete).is_some() {
                if !std::mem::replace(&mut self.memory.is_said, true) {
                    log::warn!(
                        "[pool {}] connections are closed: their incomplete requests take more than {} MiB",
                        self.pool.name,
                        BUDGET >> 20
                    );
                }
                self.close(id);
                return true;
            }
        }
        false
    }
}

fn held(client: &Client) -> usize {
    let reading = client.reading.as_deref().map_or(0, |reading| reading.memory());
    reading + client.bytes.capacity()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_a_flood() {
        let mut memory = Memory::default();
        memory.change(0, 1 << 20);
        memory.change(1 << 20, 0);
        assert!(!memory.gives_back(), "a little");
        memory.change(0, BUDGET + 1);
        assert!(memory.is_over() && !memory.gives_back());
        memory.change(BUDGET + 1, 5);
        assert!(!memory.is_over() && memory.gives_back() && !memory.gives_back());
    }
}
