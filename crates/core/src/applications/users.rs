//! Who has how much of the pool: no user takes all of what others need.

use super::index::{Class, Want};
use super::instance::Instance;
use super::instance_state::InstanceState;
use super::pool::ApplicationPool;
use std::collections::BTreeMap;

/// What each user has of the pool. One who has nothing is not there.
#[derive(Debug, Default)]
pub(super) struct Users {
    shares: BTreeMap<u32, Share>,
    /// The first user whose application was asked for.
    first: Option<u32>,
    several: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Share {
    /// Instances that are being started.
    spawning: u32,
    instances: u32,
}

impl Users {
    /// An application of a user's is asked for.
    pub(super) fn meet(&mut self, user: u32) {
        if user != 0 {
            self.several |= *self.first.get_or_insert(user) != user;
        }
    }

    /// Whether there was ever more than one.
    pub(super) fn are_several(&self) -> bool {
        self.several
    }

    pub(super) fn starts(&mut self, user: u32) {
        self.shares.entry(user).or_default().spawning += 1;
    }

    pub(super) fn started(&mut self, user: u32) {
        self.change(user, |share| share.spawning -= 1);
    }

    pub(super) fn has(&mut self, user: u32) {
        self.shares.entry(user).or_default().instances += 1;
    }

    pub(super) fn lost(&mut self, user: u32) {
        self.change(user, |share| share.instances -= 1);
    }

    fn change(&mut self, user: u32, change: impl Fn(&mut Share)) {
        if let Some(share) = self.shares.get_mut(&user) {
            change(share);
            if *share == Share::default() {
                self.shares.remove(&user);
            }
        }
    }

    fn spawning(&self, user: u32) -> u32 {
        self.shares.get(&user).map_or(0, |share| share.spawning)
    }

    /// How many are being started if nobody counts for more than this.
    fn all_spawning(&self, share: u32) -> u32 {
        self.shares.values().map(|of| of.spawning.min(share)).sum()
    }

    /// Whether the user has half of so many places, and is not the only one.
    pub(super) fn is_rich(&self, user: u32, places: u32) -> bool {
        let instances = self.shares.get(&user).map_or(0, |share| share.instances);
        self.several && instances >= places.div_ceil(2)
    }

    /// Panics if the records disagree with the instances.
    pub(super) fn check<'i>(&self, instances: impl Iterator<Item = &'i Instance>) {
        let mut found: BTreeMap<u32, Share> = BTreeMap::new();
        for instance in instances {
            let share = found.entry(instance.user).or_default();
            share.instances += 1;
            share.spawning += u32::from(instance.state == InstanceState::Spawning);
        }
        assert_eq!(found, self.shares, "the users' shares are counted right");
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
        self.next_want(|(class, .., app)| {
            let user = self.apps[app].options.user;
            self.count() < self.places(*class, user)
        })
    }
}
