//! Who gets the next place, and who gives one up.

use super::action::Reason;
use super::application::AppId;
use super::book::{Book, Step};
use super::event::Ticket;
use super::index::Class;
use super::life::Cause;

impl Book {
    /// Draws the consequences of what changed, until there are none.
    pub(super) fn settle(&mut self, step: &mut Step<'_>) {
        loop {
            while let Some(app) = self.touched.pop_first() {
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
    }

    /// Takes one step towards a better use of the places; `false`: there is none.
    fn distribute(&mut self, step: &mut Step<'_>) -> bool {
        if self.ending {
            return false;
        }
        self.shrink(step) || self.give(step) || self.roll(step) || self.queue_privately(step)
    }

    /// After the total was lowered: lets idle instances go, and busy ones after their sessions.
    fn shrink(&mut self, step: &mut Step<'_>) -> bool {
        let going = self.counts.stopping + self.counts.draining + self.counts.spent + self.counts.spares;
        if self.count().saturating_sub(going) <= self.max {
            return false;
        }
        if self.evict(step) {
            return true;
        }
        // The last one of an application stays while somebody waits for it.
        match self.index.yields.last() {
            Some(&(serving, oldest, app)) if serving > 1 || oldest == Ticket(u64::MAX) => {
                self.yield_one(app, step)
            }
            _ => false,
        }
    }

    /// Gives a place to who wants one most, or makes one free for it.
    fn give(&mut self, step: &mut Step<'_>) -> bool {
        let Some(&(class, _, ticket, app)) = self.index.wants.first() else {
            return false;
        };
        if self.counts.spawning >= self.most_spawning {
            return false;
        }
        if self.count() < self.max {
            self.spawn(app, step);
            return true;
        }
        if self.counts.stopping < self.index.wanted && self.evict(step) {
            return true;
        }
        let coming = self.counts.stopping + self.counts.spent;
        if class != Class::Starving || coming >= self.index.starving {
            return false;
        }
        // Whoever has most gives one up; of those that have one, who is asked for last. Who was asked for before stays.
        match self.index.yields.last() {
            Some(&(serving, oldest, rich)) if serving > 1 || oldest > ticket => self.yield_one(rich, step),
            _ => false,
        }
    }

    /// Stops the instance that has been idle longest, of those that are not needed for a minimum.
    fn evict(&mut self, step: &mut Step<'_>) -> bool {
        let Some((_, app)) = self.index.evictable.first() else {
            return false;
        };
        let idle = self.apps[app].idle.first();
        let Some(id) = idle.map(|idle| idle.1) else {
            return false;
        };
        self.retire(id, Reason::Evicted, step);
        true
    }

    /// Gives the application's least busy instance no more sessions, so that its place is free after those it has.
    fn yield_one(&mut self, app: AppId, step: &mut Step<'_>) -> bool {
        let Some((_, id)) = self.apps[&app].busy.first().copied() else {
            return false;
        };
        step.say(super::action::Notice::Leaves(id, Reason::Evicted));
        self.change(id, Cause::Spend, step);
        true
    }

    /// Goes on with a rolling restart. Its spare may be one more than the total, so that a full pool can be restarted.
    fn roll(&mut self, step: &mut Step<'_>) -> bool {
        let Some(app) = self.index.rolls.first().copied() else {
            return false;
        };
        if self.count() > self.max || self.counts.spawning >= self.most_spawning {
            return false;
        }
        self.spawn_spare(app, step);
        true
    }

    /// No place can be had: those who hoped for one wait in private queues.
    fn queue_privately(&mut self, step: &mut Step<'_>) -> bool {
        let hopeless = self.count() >= self.max && self.counts.stopping == 0;
        match self.index.hopes.first().copied() {
            Some(app) if hopeless => self.dispatch(app, 0, step),
            _ => false,
        }
    }
}
