//! Indexes over all applications, so that no decision has to scan them.

use super::application::{AppId, Application, length};
use super::event::SessionId;
use super::pool::{ApplicationPool, Step};
use super::timers::Timer;
use forkyard_base::timers::SHORTEST;
use std::collections::{BTreeMap, BTreeSet};

/// Why an instance is needed, most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Requests wait, and no instance serves or starts.
    Starving,
    Short,
    /// Requests wait, and all instances are busy.
    Growing,
    /// All instances are busy, and the application may spread.
    Spreading,
}

pub(super) type Want = (Class, u32, SessionId, AppId);

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// When the idle instance above its minimum was last used.
    pub evictable: Option<u64>,
    /// Why it needs instances, how many it has, and its oldest waiting request.
    pub wants: Option<(Class, u32, SessionId)>,
    pub user: u32,
    pub wanted: u32,
    /// Its serving instances above the minimum, and its oldest waiting request (none: the highest number).
    pub yields: Option<(u32, SessionId)>,
    /// Its waiting requests may have to go into private queues.
    pub hopes: bool,
    /// Its rolling restart needs the next instance.
    pub rolls: bool,
    /// A rolling restart has exceeded its share.
    pub over: bool,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    pub evictable: BTreeMap<u32, BTreeSet<(u64, AppId)>>,
    /// By user, so that many applications of one user don't delay others.
    pub wants: BTreeMap<u32, BTreeSet<Want>>,
    pub wanted: u32,
    pub starving: u32,
    pub yields: BTreeMap<u32, BTreeSet<(u32, SessionId, AppId)>>,
    pub hopes: BTreeSet<AppId>,
    pub rolls: BTreeSet<AppId>,
    pub over: u32,
}

pub(super) fn keys(app: &Application) -> Keys {
    let serving = app.serving();
    let spawning = length(app.spawning.len());
    let oldest = app.waiters.first().copied();
    let (needed, missing) = app.wanted();
    let class = if needed > 0 && serving == 0 && spawning == 0 {
        Class::Starving
    } else if missing > 0 {
        Class::Short
    } else if needed > 0 {
        Class::Growing
    } else {
        Class::Spreading
    };
    // No place is freed for an instance that no request waits for.
    let wanted = needed.max(missing);
    let wants = wanted > 0 || app.spreads();
    let may_lose = app.may_lose();
    let private = !app.options.use_global_queue && serving > 0;
    Keys {
        evictable: app
            .idle
            .first()
            .filter(|_| may_lose && app.waiters.is_empty())
            .map(|idle| idle.0),
        wants: wants.then_some((class, app.size(), oldest.unwrap_or(SessionId(u64::MAX)))),
        user: app.options.user,
        wanted,
        yields: (may_lose && !app.busy.is_empty())
            .then_some((serving, oldest.unwrap_or(SessionId(u64::MAX)))),
        hopes: private && app.waiters.len() > app.spawning.len(),
        rolls: app
            .rolling
            .as_ref()
            .is_some_and(|rolling| rolling.spare.is_none() && !rolling.old.is_empty())
            && app.size() <= app.max_instances()
            && app.backoff.is_none(),
        over: app.is_over,
    }
}

/// Files a key, or takes it out again.
fn change<K: Ord>(set: &mut BTreeSet<K>, key: K, enters: bool) {
    match enters {
        true => set.insert(key),
        false => set.remove(&key),
    };
}

fn change_of_user<K: Ord>(by_user: &mut BTreeMap<u32, BTreeSet<K>>, user: u32, key: K, enters: bool) {
    let of_user = by_user.entry(user).or_default();
    change(of_user, key, enters);
    if of_user.is_empty() {
        by_user.remove(&user);
    }
}

impl Index {
    /// Files an application by its keys, or takes it out again.
    pub(super) fn change(&mut self, id: AppId, keys: &Keys, enters: bool) {
        let count = |sum: &mut u32, of: u32| *sum = if enters { *sum + of } else { *sum - of };
        if let Some(used) = keys.evictable {
            change_of_user(&mut self.evictable, keys.user, (used, id), enters);
        }
        if let Some((class, size, session)) = keys.wants {
            change_of_user(&mut self.wants, keys.user, (class, size, session, id), enters);
            count(&mut self.starving, u32::from(class == Class::Starving));
        }
        count(&mut self.wanted, keys.wanted);
        if let Some((serving, session)) = keys.yields {
            change_of_user(&mut self.yields, keys.user, (serving, session, id), enters);
        }
        for (set, holds) in [(&mut self.hopes, keys.hopes), (&mut self.rolls, keys.rolls)] {
            if holds {
                change(set, id, enters);
            }
        }
        count(&mut self.over, u32::from(keys.over));
    }
}

impl ApplicationPool {
    pub(super) fn reindex(&mut self, id: AppId, step: &Step<'_>) {
        let Some(app) = self.apps.get_mut(&id) else {
            return;
        };
        app.is_over &= app.size() > app.max_instances();
        let new = keys(app);
        if new != app.keys {
            self.index.change(id, &app.keys, false);
            self.index.change(id, &new, true);
            app.keys = new;
        }
        let may_lose = !app.resisting && app.may_lose();
        let longest = app.idle.first().filter(|_| may_lose);
        if let (Some((_, instance)), Some(most), false) = (
            longest,
            app.options.max_idle_time,
            self.timers.is_set(Timer::Idle(id)),
        ) {
            let since = self.instances[instance].used_at;
            let due = (since + most).max(step.now + SHORTEST);
            self.timers.set_at(Timer::Idle(id), due);
        }
    }
}
