//! Decides which application gets the next place, and which gives one up.

use super::action::{Notice, Reason};
use super::application::{AppId, length};
use super::event::SessionId;
use super::index::Class;
use super::instance_state::InstanceCause;
use super::pool::{ApplicationPool, Step};
use std::collections::BTreeSet;

impl ApplicationPool {
    pub(super) fn settle(&mut self, step: &mut Step<'_>) {
        loop {
            while let Some(app) = self.touched.pop_first() {
                self.exchange(app, step);
                self.begin_work(app, step);
                self.serve(app, step);
                self.finish_rolling(app, step);
                self.reindex(app, step);
                self.forget(app);
            }
            if !self.distribute(step) {
                break;
            }
        }
        self.excused = self.excused.min(self.count());
    }

    pub(super) fn set_max(&mut self, max: u32) {
        self.max = max;
        self.excused = self.count();
        self.share_anew();
    }

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

    /// The most instances of one application without the reserve, even while other instances leave.
    pub(super) fn share(&self) -> u32 {
        match self.reserve {
            0 => u32::MAX,
            _ => self.open_places().max(1),
        }
    }

    fn open_places(&self) -> u32 {
        self.max.saturating_sub(self.reserve)
    }

    pub(super) fn places(&self, class: Class) -> u32 {
        match class {
            // A rolling restart's extra place must not delay a starving application.
            Class::Starving => self.max.saturating_add(u32::from(self.index.over > 0)),
            Class::Short => self.max,
            Class::Growing | Class::Spreading => self.open_places(),
        }
    }

    /// Takes one step to distribute places. `false`: there was nothing to do.
    fn distribute(&mut self, step: &mut Step<'_>) -> bool {
        self.shrink(step) || self.give(step) || self.roll(step) || self.queue_privately(step)
    }

    /// Whether more instances than the pool's maximum remain once all leaving instances are gone.
    fn is_over(&self) -> bool {
        let going = self.counts.stopping + self.counts.draining + self.counts.finishing + self.counts.spares;
        self.count().saturating_sub(going) > self.max
    }

    fn shrink(&mut self, step: &mut Step<'_>) -> bool {
        if !self.is_over() {
            return false;
        }
        if self.evict(step) {
            return true;
        }
        // An application's last instance stays while a request waits for it.
        match self.index.yields.values().filter_map(BTreeSet::last).max() {
            Some(&(serving, oldest, app)) if serving > 1 || oldest == SessionId(u64::MAX) => {
                self.yield_one(app, step)
            }
            _ => false,
        }
    }

    /// Gives a place to the first application in line, or frees one for it.
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

    /// Stops the instance that has been idle longest and is above its application's minimum.
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

    /// Retires the least busy instance, or the first that becomes idle ([`ApplicationPool::exchange`]).
    fn yield_one(&mut self, app: AppId, step: &mut Step<'_>) -> bool {
        let Some((_, id)) = self.apps[&app].busy.first().copied() else {
            return false;
        };
        step.say(Notice::Leaves(id, Reason::Evicted));
        self.change(id, InstanceCause::Finish, step);
        self.yielding.insert(id);
        true
    }

    /// Stops an idle instance in place of one that finishes long sessions.
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

    /// Continues a rolling restart, whose spare may exceed the total.
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

    /// Moves waiting requests into private queues if no place can become free.
    fn queue_privately(&mut self, step: &mut Step<'_>) -> bool {
        let is_full = self.count() >= self.open_places() && self.counts.stopping == 0;
        match self.index.hopes.first().copied() {
            Some(app) if is_full => self.dispatch(app, 0, step),
            _ => false,
        }
    }
}
