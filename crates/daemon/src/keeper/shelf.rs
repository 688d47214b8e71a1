//! Stored items with names, in the order received.

use std::collections::{BTreeMap, HashMap};

/// The most items on a shelf.
pub const MOST: usize = 65_536;

/// Items with names; a name may occur more than once.
#[derive(Debug)]
pub struct Shelf<T> {
    things: BTreeMap<u64, (String, T)>,
    /// Item numbers by name. A master with thousands of pools removes items whenever a worker exits.
    numbers: HashMap<String, Vec<u64>>,
    next: u64,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Shelf {
            things: BTreeMap::new(),
            numbers: HashMap::new(),
            next: 0,
        }
    }
}

impl<T> Shelf<T> {
    /// Adds an item. Returns `false` if the shelf is full.
    pub fn keep(&mut self, name: &str, thing: T) -> bool {
        let has_room = self.things.len() < MOST;
        if has_room {
            self.things.insert(self.next, (name.to_owned(), thing));
            self.numbers.entry(name.to_owned()).or_default().push(self.next);
            self.next += 1;
        }
        has_room
    }

    /// Removes all items with this name.
    pub fn forget(&mut self, name: &str) {
        for number in self.numbers.remove(name).into_iter().flatten() {
            self.things.remove(&number);
        }
    }

    /// Returns all items.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.things.values().map(|(name, thing)| (name.as_str(), thing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_forgotten_with_everything_under_it() {
        let mut shelf = Shelf::default();
        assert!(shelf.keep("a", 1) && shelf.keep("b", 2) && shelf.keep("a", 3));
        shelf.forget("a");
        shelf.forget("c");
        assert_eq!(shelf.iter().collect::<Vec<_>>(), [("b", &2)]);
        assert!(shelf.keep("a", 4));
        assert_eq!(shelf.iter().collect::<Vec<_>>(), [("b", &2), ("a", &4)]);
    }

    #[test]
    fn a_full_shelf_takes_nothing_more() {
        let mut shelf = Shelf::default();
        assert!((0..MOST).all(|number| shelf.keep("x", number)));
        assert!(!shelf.keep("y", 0));
    }
}
