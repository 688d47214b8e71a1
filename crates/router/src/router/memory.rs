//! A memory budget for all connections.
//!
//! A request that arrives in pieces is buffered until its parameters are complete, and a waiting request keeps its
//! buffer. Over the budget, the connections with the oldest incomplete requests are closed. Unused memory is returned
//! to the kernel explicitly, because free(3) may keep it.

pub(super) const BUDGET: usize = 32 << 20;
/// Returns memory if the peak was at least this and less than a quarter is still in use.
const WORTH_GIVING_BACK: usize = 8 << 20;

#[derive(Debug, Default)]
pub(super) struct Memory {
    used: usize,
    peak: usize,
    is_said: bool,
}

impl Memory {
    pub(super) fn change(&mut self, before: usize, now: usize) {
        self.used = self.used.saturating_sub(before) + now;
        self.peak = self.peak.max(self.used);
    }

    pub(super) fn is_over(&self) -> bool {
        self.used > BUDGET
    }

    /// Whether to log that connections are closed: once until memory is returned.
    pub(super) fn says(&mut self) -> bool {
        !std::mem::replace(&mut self.is_said, true)
    }

    pub(super) fn gives_back(&mut self) -> bool {
        let is_due = self.peak >= WORTH_GIVING_BACK && self.used < self.peak / 4;
        if is_due {
            (self.peak, self.is_said) = (self.used, false);
        }
        is_due
    }
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
