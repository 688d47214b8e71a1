//! What is kept: things with names, in the order in which they came.

/// The most things on a shelf.
pub const MOST: usize = 65_536;

/// Things with names; a name may occur more than once.
#[derive(Debug)]
pub struct Shelf<T> {
    things: Vec<(String, T)>,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Shelf { things: Vec::new() }
    }
}

impl<T> Shelf<T> {
    /// Puts a thing on the shelf; `false`: it is full.
    pub fn keep(&mut self, name: &str, thing: T) -> bool {
        let has_room = self.things.len() < MOST;
        if has_room {
            self.things.push((name.to_owned(), thing));
        }
        has_room
    }

    /// Takes everything of a name away.
    pub fn forget(&mut self, name: &str) {
        self.things.retain(|(known, _)| known != name);
    }

    /// Everything that is there.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.things.iter().map(|(name, thing)| (name.as_str(), thing))
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
        assert_eq!(shelf.iter().collect::<Vec<_>>(), [("b", &2)]);
    }

    #[test]
    fn a_full_shelf_takes_nothing_more() {
        let mut shelf = Shelf::default();
        assert!((0..MOST).all(|number| shelf.keep("x", number)));
        assert!(!shelf.keep("y", 0));
    }
}
