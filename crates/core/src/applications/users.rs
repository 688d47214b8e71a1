//! Shares of users, so that no user takes all places or starts.

use super::application::{AppId, length};
use super::event::SessionId;
use super::index::{Class, Want};
use super::instance::Instance;
use super::instance_state::InstanceState;
use super::pool::ApplicationPool;
use std::collections::BTreeMap;

/// Each user's counts; users without instances are absent.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<u32, Share>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Share {
    spawning: u32,
    /// Places, including those of leaving instances.
    places: u32,
    /// Instances that are not leaving.
    kept: u32,
}

impl Users {
    pub(super) fn count(&mut self, user: u32, state: InstanceState, enters: bool) {
        let share = self.0.entry(user).or_default();
        let change = |count: &mut u32, is_counted: bool| match (is_counted, enters) {
            (false, _) => {}
            (true, true) => *count += 1,
            (true, false) => *count -= 1,
        };
        change(&mut share.spawning, state == InstanceState::Spawning);
        change(&mut share.places, true);
        change(&mut share.kept, !is_leaving(state));
        if *share == Share::default() {
            self.0.remove(&user);
        }
    }

    fn all_spawning(&self, share: u32) -> u32 {
        self.0.values().map(|of| of.spawning.min(share)).sum()
    }

    fn of(&self, user: u32) -> Share {
        self.0.get(&user).copied().unwrap_or_default()
    }

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
    /// Whether a user may start an instance: while another waits, only up to half of the starts, rounded up. Earlier
    /// starts beyond that don't count against others.
    pub(super) fn may_start(&self, user: u32) -> bool {
        let share = self.most_spawning.div_ceil(2);
        if self.users.of(user).spawning < share && self.users.all_spawning(share) < self.most_spawning {
            return true;
        }
        self.counts.spawning < self.most_spawning && !self.waits_another(user)
    }

    fn waits_another(&self, user: u32) -> bool {
        let is_starving = |want: &Want| want.0 == Class::Starving;
        let mut others = self.index.wants.iter().filter(|(of, _)| **of != user);
        others.any(|(_, wants)| wants.first().is_some_and(is_starving))
    }

    /// The first application that may start an instance. Only the first of each user is checked; users with less than
    /// half of the places come first.
    pub(super) fn next_want(&self, possible: impl Fn(&Want) -> bool) -> Option<Want> {
        let firsts = self.index.wants.iter();
        let firsts = firsts.filter_map(|(user, wants)| Some((*user, *wants.first()?)));
        let may_start = firsts.filter(|(user, want)| possible(want) && self.may_start(*user));
        let order =
            |(user, want): &(u32, Want)| (want.0, want.0 == Class::Starving && self.has_share(*user), *want);
        may_start.min_by_key(order).map(|(_, want)| want)
    }

    /// The first starving application that none of the `coming` places is for.
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

    fn share_of_user(&self) -> u32 {
        self.max.div_ceil(2)
    }

    fn has_share(&self, user: u32) -> bool {
        self.users.of(user).places >= self.share_of_user()
    }

    fn has_too_many(&self, user: u32) -> bool {
        self.users.of(user).kept > self.share_of_user()
    }

    /// The application with the longest idle instance; first of users with more than half of the places.
    pub(super) fn next_to_evict(&self) -> Option<AppId> {
        let firsts = self.index.evictable.iter();
        let firsts = firsts.filter_map(|(user, apps)| Some((!self.has_too_many(*user), *apps.first()?)));
        firsts.min().map(|(_, (_, app))| app)
    }

    /// The application that yields a busy instance to a starving one. A user with over half of the places always
    /// yields; with half, among their own first.
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
        // One of the user's own places becomes free soon.
        if own.is_none() && self.has_share(user) && (share.spawning > 0 || share.places > share.kept) {
            return None;
        }
        let all = || self.index.yields.keys().filter_map(last_of).max();
        // The application with the most instances, or with the latest request if all have one.
        let (serving, oldest, app) = own.or_else(all)?;
        (serving > 1 || oldest > session).then_some(app)
    }

    /// The first application that may start an instance in a free place.
    pub(super) fn next_to_start(&self) -> Option<Want> {
        self.next_want(|(class, ..)| self.count() < self.places(*class))
    }
}
