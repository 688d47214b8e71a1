//! Which application gets the next place, and which gives one up.

use super::action::{Notice, Reason};
use super::application::{AppId, length};
use super::event::SessionId;
use super::index::Class;
use super::instance_state::InstanceCause;
use super::pool::{ApplicationPool, Step};
use std::collections::BTreeSet;

impl ApplicationPool {
    /// Draws the consequences of what changed, until there are none.
    pub(super) fn settle(&mut self, step: &mut Step<'_>) {
        loop {
            while let Some(app) = self.touched.pop_first() {
                self.exchange(app, step);
                self.begin_work(app, step);
                self.serve(app, step);
                self.finish_rolling(app, step);
                self.reindex(app, step);
                self.forget(app, step);
            }
            if !self.distribute(step) {
                break;
            }
        }
        self.excused = self.excused.min(self.count());
        self.finish(step);
    }

    /// Another total.
    pub(super) fn set_max(&mut self, max: u32) {
        self.max = max;
        self.excused = self.count();
        self.share_anew();
    }

    /// Another reserve.
    pub(super) fn set_reserve(&mut self, reserve: u32) {
        self.reserve = reserve;
        self.share_anew();
    }

    fn share_anew(&mut self) {
        let share = self.share();
        for (id, app) in &mut self.apps {
            app.share = share;
            self.touched.insert(*id);
        }
    }

    /// The most instances of one application, but for its minimum. So an application whose instances leave after long
    /// sessions, while new ones are started for them, can't take what is reserved for others either.
    pub(super) fn share(&self) -> u32 {
        match self.reserve {
            0 => u32::MAX,
            _ => self.open_places().max(1),
        }
    }

    /// Places that any application can take.
    fn open_places(&self) -> u32 {
        self.max.saturating_sub(self.reserve)
    }

    /// The places that an application which wants one for this reason may take.
    pub(super) fn places(&self, class: Class) -> u32 {
        match class {
            // A rolling restart may hold one place more than `max` until one of its old instances has finished. An application
            // without an instance must not wait for that.
            Class::Starving => self.max.saturating_add(u32::from(self.index.over > 0)),
            Class::Short => self.max,
            Class::Growing | Class::Spreading => self.open_places(),
        }
    }

    /// Takes one step towards a better use of the places; `false`: there is none.
    fn distribute(&mut self, step: &mut Step<'_>) -> bool {
        if self.ending {
            return false;
        }
        self.shrink(step) || self.give(step) || self.roll(step) || self.queue_privately(step)
    }

    /// More than the total stay when those are gone that are leaving.
    fn is_over(&self) -> bool {
        let going = self.counts.stopping + self.counts.draining + self.counts.finishing + self.counts.spares;
        self.count().saturating_sub(going) > self.max
    }

    /// After the total was lowered: lets idle instances go, and busy ones after their sessions.
    fn shrink(&mut self, step: &mut Step<'_>) -> bool {
        if !self.is_over() {
            return false;
        }
        if self.evict(step) {
            return true;
        }
        // The last instance of an application stays while a request waits for it.
        match self.index.yields.values().filter_map(BTreeSet::last).max() {
            Some(&(serving, oldest, app)) if serving > 1 || oldest == SessionId(u64::MAX) => {
                self.yield_one(app, step)
            }
            _ => false,
        }
    }

    /// Gives a place to the application that wants one most, or makes one free for it.
    fn give(&mut self, step: &mut Step<'_>) -> bool {
        if let Some((.., app)) = self.next_to_start() {
            self.spawn(app, step);
            return true;
        }
        let Some((class, ..)) = self.next_want(|_| true) else {
            return false;
        };
        if class != Class::Spreading && self.counts.stopping < self.index.wanted && self.evict(step) {
            return true;
        }
        let coming = self.counts.stopping + length(self.yielding.len());
        match self.next_to_get(coming) {
            Some((_, _, session, app)) => match self.next_to_yield(app, session) {
                Some(app) => self.yield_one(app, step),
                None => false,
            },
            None => false,
        }
    }

    /// Stops the instance that has been idle longest, of those that are not needed for a minimum.
    fn evict(&mut self, step: &mut Step<'_>) -> bool {
        let Some(app) = self.next_to_evict() else {
            return false;
        };
        let idle = self.apps[&app].idle.first();
        let Some(id) = idle.map(|idle| idle.1) else {
            return false;
        };
        self.retire(id, Reason::Evicted, step);
        true
    }

    /// Gives the application's least busy instance no more sessions, so that its place is free after those it has. If
    /// another instance is without sessions before that, it gives up its place instead ([`ApplicationPool::exchange`]).
    fn yield_one(&mut self, app: AppId, step: &mut Step<'_>) -> bool {
        let Some((_, id)) = self.apps[&app].busy.first().copied() else {
            return false;
        };
        step.say(Notice::Leaves(id, Reason::Evicted));
        self.change(id, InstanceCause::Finish, step);
        self.yielding.insert(id);
        true
    }

    /// Has an instance without sessions leave, if there is one now, in the place of one that is to leave after sessions
    /// that may last for long. This comes before it is given another session, so the application that needs the place
    /// waits only for the shortest.
    pub(super) fn exchange(&mut self, id: AppId, step: &mut Step<'_>) {
        let Some(app) = self.apps.get(&id).filter(|app| app.rolling.is_none()) else {
            return;
        };
        let mut yielding = self.yielding.iter().filter(|one| app.instances.contains(one));
        let (Some(yielding), Some((_, idle))) = (yielding.next().copied(), app.idle.first().copied()) else {
            return;
        };
        step.say(Notice::Stays(yielding));
        self.change(yielding, InstanceCause::Reprieve, step);
        let is_needed = self.counts.stopping < self.index.starving || self.is_over();
        if is_needed && !self.evict(step) && self.apps[&id].may_lose() {
            self.retire(idle, Reason::Evicted, step);
        }
    }

    /// Goes on with a rolling restart. Its spare may be one more than the total, so that a full pool can be restarted.
    fn roll(&mut self, step: &mut Step<'_>) -> bool {
        if self.count() > self.max {
            return false;
        }
        let may_start = |app: &&AppId| self.may_start(self.apps[app].options.user);
        let Some(app) = self.index.rolls.iter().find(may_start).copied() else {
            return false;
        };
        self.spawn_spare(app, step);
        true
    }

    /// No place can be had: the requests that wait for one go into private queues.
    fn queue_privately(&mut self, step: &mut Step<'_>) -> bool {
        let is_full = self.count() >= self.open_places() && self.counts.stopping == 0;
        match self.index.hopes.first().copied() {
            Some(app) if is_full => self.dispatch(app, 0, step),
            _ => false,
        }
    }
}
