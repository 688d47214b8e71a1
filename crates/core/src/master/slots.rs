//! The assignment of scoreboard slots to workers.

use super::event::SlotIndex;

#[derive(Debug, Default)]
pub(super) struct Slots {
    used: Vec<bool>,
    /// A slot that is likely free: the one given back last, or the one after the one given last.
    free: usize,
    taken: u32,
    lost: u32,
}

impl Slots {
    pub(super) fn new(count: u32) -> Slots {
        Slots {
            used: vec![false; usize::try_from(count).unwrap_or(usize::MAX)],
            ..Slots::default()
        }
    }

    pub(super) fn take(&mut self) -> Option<SlotIndex> {
        let count = self.used.len();
        let index = (self.free..count)
            .chain(0..self.free)
            .find(|index| !self.used[*index])?;
        self.used[index] = true;
        self.free = (index + 1) % count;
        self.taken += 1;
        u32::try_from(index).ok().map(SlotIndex)
    }

    pub(super) fn occupy(&mut self, slot: SlotIndex) -> bool {
        let is_free = self.mark(slot);
        self.taken += u32::from(is_free);
        is_free
    }

    pub(super) fn lose(&mut self, slot: SlotIndex) {
        let was_free = self.mark(slot);
        self.lost += u32::from(was_free);
    }

    fn mark(&mut self, slot: SlotIndex) -> bool {
        let used = usize::try_from(slot.0)
            .ok()
            .and_then(|index| self.used.get_mut(index));
        used.is_some_and(|used| !std::mem::replace(used, true))
    }

    pub(super) fn give_back(&mut self, slot: SlotIndex) {
        let Ok(index) = usize::try_from(slot.0) else {
            return;
        };
        if self.used.get(index) == Some(&true) {
            self.used[index] = false;
            self.free = index;
            self.taken -= 1;
        }
    }

    pub(super) fn all_taken(&self) -> bool {
        usize::try_from(self.taken + self.lost) == Ok(self.used.len())
    }

    pub(super) fn taken(&self) -> u32 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_given_back_last_is_given_next() {
        let mut slots = Slots::new(3);
        assert_eq!(slots.take(), Some(SlotIndex(0)));
        assert_eq!(slots.take(), Some(SlotIndex(1)));
        slots.give_back(SlotIndex(0));
        assert_eq!(slots.take(), Some(SlotIndex(0)));
        assert_eq!(slots.take(), Some(SlotIndex(2)));
        assert!(slots.all_taken());
        assert_eq!(slots.take(), None);
    }

    #[test]
    fn a_lost_slot_is_never_given() {
        let mut slots = Slots::new(3);
        slots.lose(SlotIndex(1));
        assert!(slots.occupy(SlotIndex(0)) && !slots.occupy(SlotIndex(0)) && !slots.occupy(SlotIndex(1)));
        assert_eq!(slots.take(), Some(SlotIndex(2)));
        assert_eq!((slots.take(), slots.taken(), slots.all_taken()), (None, 2, true));
    }

    #[test]
    fn giving_back_twice_counts_once() {
        let mut slots = Slots::new(2);
        slots.take();
        slots.give_back(SlotIndex(0));
        slots.give_back(SlotIndex(0));
        slots.give_back(SlotIndex(9));
        assert_eq!(slots.taken(), 0);
    }
}
