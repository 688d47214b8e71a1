//! Trials: a new generation without workers must show that it can have one. Few run at a time, as each may load an
//! application.

use super::event::GenerationId;
use std::collections::{BTreeSet, VecDeque};

/// As many as an application pool starts at a time by default.
const MOST_AT_A_TIME: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Trials {
    running: BTreeSet<GenerationId>,
    waiting: VecDeque<GenerationId>,
}

impl Trials {
    /// Returns whether the trial may begin now; otherwise it waits.
    pub(super) fn add(&mut self, id: GenerationId) -> bool {
        let begins = self.running.len() < MOST_AT_A_TIME;
        match begins {
            true => drop(self.running.insert(id)),
            false => self.waiting.push_back(id),
        }
        begins
    }

    pub(super) fn waits(&self, id: GenerationId) -> bool {
        self.waiting.contains(&id)
    }

    /// Ends a trial. Returns the next generation to try.
    pub(super) fn end(&mut self, id: GenerationId) -> Option<GenerationId> {
        self.waiting.retain(|other| *other != id);
        if !self.running.remove(&id) {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.running.insert(next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_tried_at_a_time_and_each_has_its_turn() {
        let mut trials = Trials::default();
        let begun: Vec<bool> = (0..7).map(|id| trials.add(GenerationId(id))).collect();
        assert_eq!(begun, [true, true, true, true, false, false, false]);
        assert!(trials.waits(GenerationId(4)) && !trials.waits(GenerationId(3)));
        assert_eq!(trials.end(GenerationId(5)), None);
        assert_eq!(trials.end(GenerationId(1)), Some(GenerationId(4)));
        assert_eq!(trials.end(GenerationId(1)), None);
        assert_eq!(trials.end(GenerationId(0)), Some(GenerationId(6)));
        assert_eq!(trials.end(GenerationId(2)), None);
        assert!(trials.add(GenerationId(8)));
        assert!(!trials.add(GenerationId(9)));
    }
}
