//! What the router remembers of applications beside the pool: counters, and how often each was restarted.

use super::app_index::Known;
use crate::applications::event::ErrorId;
use crate::sys::clock;
use crate::tick::Tick;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Failures whose reports are remembered.
const MOST_ERRORS: usize = 256;

/// What became of a request that no instance answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    QueueFull,
    TimedOut,
    Refused,
}

/// How often what happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counters {
    /// Requests that asked for an instance.
    pub accepted: u64,
    /// Of these, those that had to wait.
    pub queued: u64,
    /// Requests that an instance was given.
    #[serde(rename = "lent")]
    pub leases: u64,
    /// Refused because too many waited.
    pub queue_full: u64,
    /// Refused because they had waited for too long.
    pub timed_out: u64,
    /// Refused for another reason.
    pub refused: u64,
    /// Instances that came up.
    pub spawned: u64,
    /// Instances that did not.
    pub spawn_failed: u64,
}

/// What is remembered of an application.
#[derive(Debug, Default)]
pub(super) struct App {
    pub counters: Counters,
    /// When it was last asked for.
    pub asked: Tick,
    /// The pool's number of the last restart that something was started after, and the number that the master was told. That
    /// only rises, also over the end of a router: it begins with the time.
    restarts: Option<(u32, u32)>,
    /// Why an instance could last not be started.
    pub error: Option<String>,
}

/// All applications that a request has asked for.
#[derive(Debug, Default)]
pub(super) struct Apps {
    all: HashMap<Arc<str>, App>,
    pub totals: Counters,
    /// How long an application is remembered without requests.
    pub forget_after: Duration,
    /// When one may have to be forgotten.
    forget: Option<Tick>,
}

impl Apps {
    /// None yet.
    pub(super) fn new(forget_after: Duration) -> Apps {
        Apps {
            forget_after,
            ..Apps::default()
        }
    }

    /// A request asks for an application; `true`: it was unknown.
    pub(super) fn asked(&mut self, name: &Arc<str>, now: Tick) -> bool {
        self.totals.accepted += 1;
        if let Some(app) = self.all.get_mut(name) {
            app.asked = now;
            app.counters.accepted += 1;
            return false;
        }
        let mut app = App {
            asked: now,
            ..App::default()
        };
        app.counters.accepted = 1;
        self.all.insert(Arc::clone(name), app);
        self.forget.get_or_insert(now + self.forget_after);
        true
    }

    /// When some may have to be forgotten.
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.forget
    }

    /// Forgets applications without an instance and without requests for a long time; says their names.
    pub(super) fn forget(&mut self, now: Tick, is_live: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        if self.forget.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let after = self.forget_after;
        let is_old = |name: &Arc<str>, app: &App| app.asked + after <= now && !is_live(name);
        let old = self.all.iter().filter(|(name, app)| is_old(name, app));
        let old: Vec<Arc<str>> = old.map(|(name, _)| Arc::clone(name)).collect();
        for name in &old {
            self.all.remove(name);
        }
        // One that lives is looked at again when it could be old by then.
        let soonest = self
            .all
            .values()
            .map(|app| (app.asked + after).max(now + after / 2));
        self.forget = soonest.min();
        old
    }

    /// An application of an earlier router.
    pub(super) fn adopted(&mut self, name: &Arc<str>, restarts: u32, now: Tick) {
        let app = self.all.entry(Arc::clone(name)).or_default();
        app.asked = now;
        self.forget.get_or_insert(now + self.forget_after);
        let before = app.restarts.map_or(0, |(_, told)| told);
        app.restarts = Some((0, before.max(restarts)));
    }

    pub(super) fn get(&self, name: &str) -> Option<&App> {
        self.all.get(name)
    }

    /// How often the application was restarted, for the master.
    pub(super) fn spawns(&mut self, name: &Arc<str>, restarts: u32) -> u32 {
        let now = u32::try_from(clock::epoch_seconds()).unwrap_or(u32::MAX);
        let app = self.all.entry(Arc::clone(name)).or_default();
        let told = match app.restarts {
            Some((known, told)) if known == restarts => told,
            Some((_, told)) => now.max(told.saturating_add(1)),
            None => now,
        };
        app.restarts = Some((restarts, told));
        told
    }

    fn both(&mut self, name: &str, count: impl Fn(&mut Counters)) {
        count(&mut self.totals);
        if let Some(app) = self.all.get_mut(name) {
            count(&mut app.counters);
        }
    }

    pub(super) fn leases(&mut self, name: &str) {
        self.both(name, |counters| counters.leases += 1);
    }

    pub(super) fn queued(&mut self, known: Option<&Known>) {
        if let Some(known) = known {
            self.both(&known.name, |counters| counters.queued += 1);
        }
    }

    pub(super) fn came_up(&mut self, name: &str) {
        self.both(name, |counters| counters.spawned += 1);
    }

    pub(super) fn did_not_come_up(&mut self, name: &str, why: String) {
        self.both(name, |counters| counters.spawn_failed += 1);
        if let Some(app) = self.all.get_mut(name) {
            app.error = Some(why);
        }
    }

    pub(super) fn count(&mut self, name: &str, outcome: RequestOutcome) {
        self.both(name, |counters| match outcome {
            RequestOutcome::QueueFull => counters.queue_full += 1,
            RequestOutcome::TimedOut => counters.timed_out += 1,
            RequestOutcome::Refused => counters.refused += 1,
        });
    }
}

/// The last failures, by the numbers that the pool knows them by.
#[derive(Debug, Default)]
pub(super) struct Errors {
    last: VecDeque<(ErrorId, String, Option<String>)>,
}

impl Errors {
    pub(super) fn add(&mut self, id: ErrorId, error: String, page: Option<String>) {
        if self.last.len() >= MOST_ERRORS {
            self.last.pop_front();
        }
        self.last.push_back((id, error, page));
    }

    /// The report's id, and its page.
    pub(super) fn get(&self, id: ErrorId) -> Option<(&String, &Option<String>)> {
        let found = self.last.iter().rev().find(|(known, ..)| *known == id);
        found.map(|(_, error, page)| (error, page))
    }
}
