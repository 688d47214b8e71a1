//! The router's own records of applications: counters, restarts and errors.

use super::answer::ErrorPage;
use forkyard_base::tick::Tick;
use forkyard_core::applications::event::ErrorId;
use forkyard_sys::clock;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const MOST_ERRORS: usize = 256;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counters {
    pub accepted: u64,
    pub queued: u64,
    #[serde(rename = "lent")]
    pub leases: u64,
    pub queue_full: u64,
    pub timed_out: u64,
    pub refused: u64,
    pub abandoned: u64,
    pub spawned: u64,
    pub spawn_failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct App {
    pub counters: Counters,
    pub asked: Tick,
    /// The pool's restart number at the last start, and the number sent to the master. The latter is based on the time,
    /// so it increases even across routers.
    restarts: Option<(u32, u32)>,
    pub error: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Apps {
    all: HashMap<Arc<str>, App>,
    pub totals: Counters,
    pub forget_after: Duration,
    forget: Option<Tick>,
}

impl Apps {
    pub(super) fn new(forget_after: Duration) -> Apps {
        Apps {
            forget_after,
            ..Apps::default()
        }
    }

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

    pub(super) fn next_deadline(&self) -> Option<Tick> {
        self.forget
    }

    /// Removes applications without instances and recent requests, and returns their names.
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
        let soonest = self
            .all
            .values()
            .map(|app| (app.asked + after).max(now + after / 2));
        self.forget = soonest.min();
        old
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.all.remove(name);
    }

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

    /// Counts something of an application, and of all.
    pub(super) fn count(&mut self, name: &str, counter: impl Fn(&mut Counters) -> &mut u64) {
        *counter(&mut self.totals) += 1;
        if let Some(app) = self.all.get_mut(name) {
            *counter(&mut app.counters) += 1;
        }
    }

    pub(super) fn did_not_come_up(&mut self, name: &str, why: String) {
        self.count(name, |counters| &mut counters.spawn_failed);
        if let Some(app) = self.all.get_mut(name) {
            app.error = Some(why);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Errors {
    last: VecDeque<(ErrorId, ErrorPage)>,
    count: u64,
}

impl Errors {
    /// Keeps an error under a new number.
    pub(super) fn add(&mut self, shown: ErrorPage) -> ErrorId {
        self.count += 1;
        let id = ErrorId(self.count);
        if self.last.len() >= MOST_ERRORS {
            self.last.pop_front();
        }
        self.last.push_back((id, shown));
        id
    }

    pub(super) fn get(&self, id: ErrorId) -> ErrorPage {
        let found = self.last.iter().rev().find(|(known, _)| *known == id);
        found.map(|(_, shown)| shown.clone()).unwrap_or_default()
    }
}
