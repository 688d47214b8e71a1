//! Who has how much of the pool: no user takes all of what others need.

use super::application::{AppId, length};
use super::event::SessionId;
use super::index::{Class, Want};
use super::instance::Instance;
use super::instance_state::InstanceState;
use super::pool::ApplicationPool;
use std::collections::BTreeMap;

/// What each user has of the pool. One who has nothing is not there.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<u32, Share>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Share {
    /// Instances that are being started.
    spawning: u32,
    /// Places, those of instances that are leaving among them.
    places: u32,
    /// All instances but those that are leaving.
    staying: u32,
}

impl Users {
    /// An instance of a user's enters or leaves a state.
    pub(super) fn count(&mut self, user: u32, state: InstanceState, enters: bool) {
        let share = self.0.entry(user).or_default();
        let change = |count: &mut u32, is_counted: bool| match (is_counted, enters) {
            (false, _) => {}
            (true, true) => *count += 1,
            (true, false) => *count -= 1,
        };
        change(&mut share.spawning, state == InstanceState::Spawning);
        change(&mut share.places, true);
        change(&mut share.staying, !is_leaving(state));
        if *share == Share::default() {
            self.0.remove(&user);
        }
    }

    /// How many are being started if nobody counts for more than this.
    fn all_spawning(&self, share: u32) -> u32 {
        self.0.values().map(|of| of.spawning.min(share)).sum()
    }

    fn of(&self, user: u32) -> Share {
        self.0.get(&user).copied().unwrap_or_default()
    }

    /// Panics if the records disagree with the instances.
    pub(super) fn check<'i>(&self, instances: impl Iterator<Item = &'i Instance>) {
        let mut found = Users::default();
        for instance in instances {
            found.count(instance.user, instance.state, true);
        }
        assert_eq!(found.0, self.0, "what users have is counted right");
    }
}

fn is_leaving(state: InstanceState) -> bool {
    matches!(
        state,
        InstanceState::Finishing | InstanceState::Draining | InstanceState::Stopping
    )
}

impl ApplicationPool {
    /// Whether an instance of this user's may be begun now. While another user waits, a user has half of the starts, rounded up.
    /// Starts that were begun before the other came can't be taken back: beyond the half they are not counted against him.
    pub(super) fn may_start(&self, user: u32) -> bool {
        let share = self.most_spawning.div_ceil(2);
        if self.users.of(user).spawning < share && self.users.all_spawning(share) < self.most_spawning {
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
    /// is asked. Of those that have none, those come first whose user has less than half of the places.
    pub(super) fn next_want(&self, possible: impl Fn(&Want) -> bool) -> Option<Want> {
        let firsts = self.index.wants.iter();
        let firsts = firsts.filter_map(|(user, wants)| Some((*user, *wants.first()?)));
        let may_start = firsts.filter(|(user, want)| possible(want) && self.may_start(*user));
        let order =
            |(user, want): &(u32, Want)| (want.0, want.0 == Class::Starving && self.has_share(*user), *want);
        may_start.min_by_key(order).map(|(_, want)| want)
    }

    /// The first application without an instance for which none of the `coming` places is.
    pub(super) fn next_to_get(&self, coming: u32) -> Option<Want> {
        let is_starving = |want: &&Want| want.0 == Class::Starving;
        let has_less = |user: &u32| !self.has_share(*user);
        let with_less = self.index.wants.iter().filter(|(user, _)| has_less(user));
        let first_ones = with_less.flat_map(|(_, wants)| wants.iter().take_while(is_starving));
        let is_for_others = length(first_ones.take(coming as usize + 1).count()) <= coming;
        let may_get = |want: &Want| {
            let user = self.apps.get(&want.3).map(|app| app.options.user);
            want.0 == Class::Starving && !(is_for_others && user.is_some_and(|user| has_less(&user)))
        };
        self.next_want(may_get).filter(|_| coming < self.index.starving)
    }

    /// Half of the places, rounded up.
    fn share_of_user(&self) -> u32 {
        self.max.div_ceil(2)
    }

    fn has_share(&self, user: u32) -> bool {
        self.users.of(user).places >= self.share_of_user()
    }

    /// Whether a user has more than half of the places, and keeps them.
    fn has_too_many(&self, user: u32) -> bool {
        self.users.of(user).staying > self.share_of_user()
    }

    /// The application whose instance was idle longest, of those that can spare one: first of a user's who has more than half of the
    /// places.
    pub(super) fn next_to_evict(&self) -> Option<AppId> {
        let firsts = self.index.evictable.iter();
        let firsts = firsts.filter_map(|(user, apps)| Some((!self.has_too_many(*user), *apps.first()?)));
        firsts.min().map(|(_, (_, app))| app)
    }

    /// The application that gives up a busy instance for a request that waits, for a user's application without one. One of a user's
    /// who has more than half of the places gives it up to another in any case; who has half asks his own before those of others.
    pub(super) fn next_to_yield(&self, for_whom: AppId, session: SessionId) -> Option<AppId> {
        let user = self.apps.get(&for_whom)?.options.user;
        let last_of = |of: &u32| self.index.yields.get(of)?.last().copied();
        let others = self
            .index
            .yields
            .keys()
            .filter(|of| **of != user && self.has_too_many(**of));
        if let Some((.., app)) = others.filter_map(last_of).max() {
            return Some(app);
        }
        let share = self.users.of(user);
        let own = last_of(&user).filter(|_| self.has_share(user));
        // Places of his own become free, or can be asked for, once instances are up.
        if own.is_none() && self.has_share(user) && (share.spawning > 0 || share.places > share.staying) {
            return None;
        }
        let all = || self.index.yields.keys().filter_map(last_of).max();
        // The application with the most instances. Of applications with one instance, the one that was asked for last gives it up;
        // one that was asked for before stays.
        let (serving, oldest, app) = own.or_else(all)?;
        (serving > 1 || oldest > session).then_some(app)
    }

    /// The first application that wants an instance and may start one in a free place.
    pub(super) fn next_to_start(&self) -> Option<Want> {
        self.next_want(|(class, ..)| self.count() < self.places(*class))
    }
}
