//! Who has how much of the pool: no user takes all of what others need.

use super::index::{Class, Want};
use super::instance::Instance;
use super::instance_state::InstanceState;
use super::pool::ApplicationPool;
use std::collections::BTreeMap;

/// How many instances of each user's applications are being started. One who has none is not there.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<u32, u32>);

impl Users {
    pub(super) fn starts(&mut self, user: u32) {
        *self.0.entry(user).or_default() += 1;
    }

    pub(super) fn started(&mut self, user: u32) {
        if let Some(count) = self.0.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&user);
            }
        }
    }

    fn spawning(&self, user: u32) -> u32 {
        self.0.get(&user).copied().unwrap_or(0)
    }

    /// How many are being started if nobody counts for more than this.
    fn all_spawning(&self, share: u32) -> u32 {
        self.0.values().map(|count| *count.min(&share)).sum()
    }

    /// Panics if the records disagree with the instances.
    pub(super) fn check<'i>(&self, instances: impl Iterator<Item = &'i Instance>) {
        let mut found: BTreeMap<u32, u32> = BTreeMap::new();
        for instance in instances.filter(|one| one.state == InstanceState::Spawning) {
            *found.entry(instance.user).or_default() += 1;
        }
        assert_eq!(found, self.0, "the users' starts are counted right");
    }
}

impl ApplicationPool {
    /// Whether an instance of this user's may be begun now. While another user waits, a user has half of the starts, rounded up.
    /// Starts that were begun before the other came can't be taken back: beyond the half they are not counted against him.
    pub(super) fn may_start(&self, user: u32) -> bool {
        let share = self.most_spawning.div_ceil(2);
        if self.users.spawning(user) < share && self.users.all_spawning(share) < self.most_spawning {
            return true;
        }
        self.counts.spawning < self.most_spawning && !self.waits_another(user)
    }

    /// Whether a request for an application of another user's waits that has no instance.
    fn waits_another(&self, user: u32) -> bool {
        let is_starving = |want: &Want| want.0 == Class::Starving;
        let mut others = self.index.wants.iter().filter(|(of, _)| **of != user);
        others.any(|(_, wants)| wants.first().is_some_and(is_starving))
    }

    /// The first application that wants an instance and may start one, of those that are `possible`. Of one user's only the first
    /// is asked.
    pub(super) fn next_want(&self, possible: impl Fn(&Want) -> bool) -> Option<Want> {
        let firsts = self.index.wants.iter();
        let firsts = firsts.filter_map(|(user, wants)| Some((user, wants.first()?)));
        let may_start = firsts.filter(|(user, want)| possible(want) && self.may_start(**user));
        may_start.map(|(_, want)| *want).min()
    }

    /// The first application that wants an instance and may start one in a free place.
    pub(super) fn next_to_start(&self) -> Option<Want> {
        self.next_want(|(class, ..)| self.count() < self.places(*class))
    }
}
