//! A map with a second index, so that work on one of ten thousand pools doesn't scan the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// A value's second key, not necessarily unique.
pub trait Keyed {
    /// Type of the key.
    type Key: Ord + Clone + Debug;
    /// The key, which must never change.
    fn key(&self) -> &Self::Key;
}

/// A map by id and key. The default id must be the smallest.
#[derive(Debug)]
pub struct Indexed<Id, Value: Keyed> {
    /// Boxed: a tree that grows at its end leaves its nodes half empty.
    by_id: BTreeMap<Id, Box<Value>>,
    by_key: BTreeSet<(Value::Key, Id)>,
}

impl<Id: Ord + Copy + Default, Value: Keyed> Indexed<Id, Value> {
    /// Returns the value with this id.
    pub fn get(&self, id: &Id) -> Option<&Value> {
        self.by_id.get(id).map(AsRef::as_ref)
    }

    /// Returns the value with this id, mutably.
    pub fn get_mut(&mut self, id: &Id) -> Option<&mut Value> {
        self.by_id.get_mut(id).map(AsMut::as_mut)
    }

    /// Whether the id exists.
    pub fn contains_key(&self, id: &Id) -> bool {
        self.by_id.contains_key(id)
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Iterates by id.
    pub fn iter(&self) -> impl Iterator<Item = (&Id, &Value)> {
        self.by_id.iter().map(|(id, value)| (id, value.as_ref()))
    }

    /// Iterates over the ids.
    pub fn keys(&self) -> impl Iterator<Item = &Id> {
        self.by_id.keys()
    }

    /// Iterates over the values.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.by_id.values().map(AsRef::as_ref)
    }

    /// Iterates over the values, mutably.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.by_id.values_mut().map(AsMut::as_mut)
    }

    /// Adds a value with a new id.
    pub fn insert(&mut self, id: Id, value: Value) {
        self.by_key.insert((value.key().clone(), id));
        self.by_id.insert(id, Box::new(value));
    }

    /// Removes a value.
    pub fn remove(&mut self, id: &Id) -> Option<Value> {
        let removed = self.by_id.remove(id)?;
        self.by_key.remove(&(removed.key().clone(), *id));
        Some(*removed)
    }

    /// Returns the values with this key, by id.
    pub fn of(&self, key: &Value::Key) -> impl Iterator<Item = (Id, &Value)> {
        let from = self.by_key.range((key.clone(), Id::default())..);
        from.take_while(move |(other, _)| other == key)
            .filter_map(|(_, id)| Some((*id, self.get(id)?)))
    }
}

impl<Id, Value: Keyed> Default for Indexed<Id, Value> {
    fn default() -> Self {
        Indexed {
            by_id: BTreeMap::new(),
            by_key: BTreeSet::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Named(String, u32);

    impl Keyed for Named {
        type Key = String;
        fn key(&self) -> &String {
            &self.0
        }
    }

    #[test]
    fn values_are_found_by_number_and_by_key() {
        let mut all: Indexed<u32, Named> = Indexed::default();
        for (id, name) in [(3, "b"), (0, "a"), (1, "b"), (2, "c")] {
            all.insert(id, Named(name.to_owned(), id * 10));
        }
        let of = |all: &Indexed<u32, Named>, name: &str| -> Vec<u32> {
            all.of(&name.to_owned()).map(|(id, _)| id).collect()
        };
        assert_eq!(of(&all, "b"), [1, 3]);
        assert_eq!((of(&all, "a"), of(&all, "d")), (vec![0], vec![]));
        assert_eq!(all.remove(&1), Some(Named("b".to_owned(), 10)));
        assert_eq!((of(&all, "b"), all.remove(&1)), (vec![3], None));
        all.values_mut().for_each(|one| one.1 += 1);
        assert_eq!(all.get(&3).map(|one| one.1), Some(31));
        assert_eq!((all.iter().count(), all.len()), (3, 3));
    }
}
