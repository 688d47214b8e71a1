//! A memory budget for all connections.
//!
//! A request that arrives in pieces is buffered until its parameters are complete, and a waiting request keeps its
//! buffer. Over the budget, the connections with the oldest incomplete requests are closed. Unused memory is returned
//! to the kernel explicitly, because free(3) may keep it.

use super::client::Client;
use super::event_loop::Router;
use super::state::ClientState;
use crate::sys::memfile::give_back;

const BUDGET: usize = 32 << 20;
/// Returns memory if the peak was at least this and less than a quarter is still in use.
const WORTH_GIVING_BACK: usize = 8 << 20;

#[derive(Debug, Default)]
pub(super) struct Memory {
    used: usize,
    peak: usize,
    is_said: bool,
}

impl Memory {
    fn change(&mut self, before: usize, now: usize) {
        self.used = self.used.saturating_sub(before) + now;
        self.peak = self.peak.max(self.used);
    }

    fn is_over(&self) -> bool {
        self.used > BUDGET
    }

    fn gives_back(&mut self) -> bool {
        let is_due = self.peak >= WORTH_GIVING_BACK && self.used < self.peak / 4;
        if is_due {
            (self.peak, self.is_said) = (self.used, false);
        }
        is_due
    }
}

impl Router {
    pub(super) fn count_memory(&mut self, id: u64) {
        let Some(client) = self.clients.get(id) else {
            return;
        };
        let now = held(client);
        let before = std::mem::replace(&mut client.memory, now);
        self.memory.change(before, now);
        while self.memory.is_over() && self.close_incomplete() {}
    }

    pub(super) fn forget_memory(&mut self, client: &Client) {
        self.memory.change(client.memory, 0);
    }

    pub(super) fn trim_memory(&mut self) {
        if self.memory.gives_back() {
            give_back();
        }
    }

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
