//! The instances of an application pool as the master knows them.

use super::event::WorkerId;
use forkyard_base::origin::Origin;
use forkyard_base::tick::Tick;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The instances of one pool, including starting and stopping ones.
#[derive(Debug, Default)]
pub struct InstanceRegistry {
    last: u64,
    instances: BTreeMap<u64, Instance>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub application: PathBuf,
    /// The restart count, as in the router's `ToMaster::Spawn`.
    pub restarts: u32,
    /// Its code's version, if known.
    pub revision: Option<String>,
    /// Its origin, if known.
    pub origin: Option<Origin>,
    pub at: At,
    pub since: Tick,
    /// When the router requested it.
    pub asked: Tick,
    /// Whether it was told to stop.
    pub is_stopping: bool,
    /// Whether the present router knows it.
    pub is_known: bool,
}

/// The progress of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Its application is inspected.
    Looking,
    /// A worker was requested.
    Ordered,
    /// A worker is being forked.
    Made(WorkerId),
    /// Its worker is up.
    Up(WorkerId),
}

impl Instance {
    pub fn come_to(&mut self, at: At, now: Tick) {
        (self.at, self.since) = (at, now);
    }
}

/// Why an instance is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("the number is not above {0}")]
    Stale(u64),
    #[error("there are {0} instances, and no more may be")]
    TooMany(usize),
}

impl InstanceRegistry {
    /// Returns an empty registry that accepts numbers above this one.
    pub fn after(last: u64) -> InstanceRegistry {
        InstanceRegistry {
            last,
            instances: BTreeMap::new(),
        }
    }

    /// Adds a starting instance. A rolling restart may exceed `max` by one.
    ///
    /// # Errors
    /// The number is not new, or there are too many instances.
    pub fn admit(
        &mut self,
        number: u64,
        application: PathBuf,
        restarts: u32,
        max: u32,
        now: Tick,
    ) -> Result<(), Denial> {
        if number <= self.last {
            return Err(Denial::Stale(self.last));
        }
        self.last = number;
        let count = self.instances.len();
        if u64::try_from(count).unwrap_or(u64::MAX) > u64::from(max) {
            return Err(Denial::TooMany(count));
        }
        let instance = Instance {
            application,
            restarts,
            revision: None,
            origin: None,
            at: At::Looking,
            since: now,
            asked: now,
            is_stopping: false,
            is_known: true,
        };
        self.instances.insert(number, instance);
        Ok(())
    }

    /// The highest number that was used.
    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn get(&self, number: u64) -> Option<&Instance> {
        self.instances.get(&number)
    }

    /// Returns an instance to change.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Instance> {
        self.instances.get_mut(&number)
    }

    pub fn remove(&mut self, number: u64) -> Option<Instance> {
        self.instances.remove(&number)
    }

    /// Returns all instances by number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Instance)> {
        self.instances
            .iter()
            .map(|(number, instance)| (*number, instance))
    }

    /// Handles the router's exit. Returns the instances to stop, which the next router will not know.
    pub fn orphan(&mut self) -> Vec<u64> {
        let mut stopped = Vec::new();
        for (number, instance) in &mut self.instances {
            let is_well = matches!(instance.at, At::Up(..)) && !instance.is_stopping;
            if is_well || !std::mem::replace(&mut instance.is_known, false) {
                continue;
            }
            if !std::mem::replace(&mut instance.is_stopping, true) {
                stopped.push(*number);
            }
        }
        stopped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(registry: &mut InstanceRegistry, number: u64) -> Result<(), Denial> {
        registry.admit(number, PathBuf::from("/srv/a"), 0, 2, Tick::ZERO)
    }

    #[test]
    fn numbers_are_used_once_and_there_is_one_more_than_the_limit_at_most() {
        let mut registry = InstanceRegistry::default();
        assert_eq!(admit(&mut registry, 0), Err(Denial::Stale(0)));
        for number in [1, 2, 5] {
            assert_eq!(admit(&mut registry, number), Ok(()));
        }
        assert_eq!(admit(&mut registry, 5), Err(Denial::Stale(5)));
        assert_eq!(admit(&mut registry, 6), Err(Denial::TooMany(3)));
        assert!(registry.remove(2).is_some() && registry.remove(2).is_none());
        assert_eq!(admit(&mut registry, 6), Err(Denial::Stale(6)));
        assert_eq!(admit(&mut registry, 7), Ok(()));
        assert_eq!(registry.last(), 7);
    }

    #[test]
    fn a_next_router_is_told_of_what_is_up_and_stays() {
        let mut registry = InstanceRegistry::default();
        for number in 1..=3 {
            registry
                .admit(number, PathBuf::from("/srv/a"), 0, 9, Tick::ZERO)
                .unwrap();
        }
        let up = At::Up(WorkerId(1));
        for number in [1, 2] {
            registry.get_mut(number).unwrap().at = up;
        }
        registry.get_mut(2).unwrap().is_stopping = true;
        assert_eq!(registry.orphan(), [3]);
        let known = registry
            .iter()
            .filter(|(_, it)| it.is_known)
            .map(|(number, _)| number);
        assert_eq!(known.collect::<Vec<_>>(), [1]);
        assert_eq!(registry.orphan(), [] as [u64; 0]);
    }
}
