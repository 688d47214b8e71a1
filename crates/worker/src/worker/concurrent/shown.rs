//! Which of several requests the worker's slot shows: the one that has been under way for the longest.
//!
//! The master looks for requests that are slow by what slots show. One that was shown for long enough to be found slow makes
//! room for the next, so that one after the other is found, as long as it runs.

use super::super::request::description;
use super::desk::Desk;
use super::place::Phase;
use crate::scoreboard::Stage;
use crate::scoreboard::stamp::Stamp;
use crate::tick::Tick;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a request is shown after it has become slow, while others wait to be shown.
const FOUND_WITHIN: Duration = Duration::from_millis(200);

/// The requests under way, in the order in which they were taken up.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Places and serials; those that are over are dropped some time.
    order: VecDeque<(usize, u32)>,
    now: Option<(usize, u32)>,
    since: Tick,
    due: Option<Tick>,
}

impl Shown {
    /// When another one is to be shown.
    pub(super) fn due(&self) -> Option<Tick> {
        self.due
    }
}

impl Desk {
    /// A request was taken up.
    pub(super) fn show_new(&mut self, index: usize, now: Tick) {
        self.shown.order.push_back((index, self.places[index].serial));
        if self.in_flight == 1 {
            self.stamp().accepted(now);
        }
        self.stamp().count_request();
        self.show(now);
    }

    /// A request is over.
    pub(super) fn show_end(&mut self, took: Duration, now: Tick) {
        let micros = took.as_micros() as u64;
        if self.in_flight == 0 {
            self.shown.order.clear();
            (self.shown.now, self.shown.due) = (None, None);
            self.stamp().finished(micros, 0);
            if !self.is_leaving() {
                self.stamp().idle(now);
            }
        } else {
            self.stamp().took(micros);
            self.show(now);
        }
    }

    fn is_under_way(&self, (index, serial): (usize, u32)) -> bool {
        let place = &self.places[index];
        place.phase == Phase::Serving && place.serial == serial
    }

    /// Shows the request that is to be shown: the first that was not found slow yet, or the first of all.
    pub(super) fn show(&mut self, now: Tick) {
        if self.is_working {
            return;
        }
        while self
            .shown
            .order
            .front()
            .is_some_and(|first| !self.is_under_way(*first))
        {
            self.shown.order.pop_front();
        }
        if let (Some((index, serial)), true) = (self.shown.now, self.shown.due.is_some_and(|due| due <= now))
        {
            if self.is_under_way((index, serial)) {
                self.places[index].was_found = true;
            }
        }
        let is_new = |it: &&(usize, u32)| self.is_under_way(**it) && !self.places[it.0].was_found;
        let first = self.shown.order.front();
        let Some(next) = self.shown.order.iter().find(is_new).or(first).copied() else {
            return;
        };
        let place = &self.places[next.0];
        if self.shown.now != Some(next) {
            self.shown.since = now;
        }
        let slow = self.settings.pool.slow_log.as_ref().map(|log| log.timeout);
        // The master is told of it now, and looks after the time that a request may take.
        let found = slow.map(|slow| place.taken.max(self.shown.since) + slow + FOUND_WITHIN);
        self.shown.due = found.filter(|_| self.in_flight > 1 && !place.was_found);
        if let Some(due) = self.shown.due {
            self.alarm.set_by(due);
        }
        if self.shown.now.replace(next) == Some(next) {
            return;
        }
        let place = &self.places[next.0];
        let Some(connection) = &place.connection else {
            return;
        };
        // One that was found slow is not to be found once more: only what executes is.
        let stage = if place.was_found {
            Stage::Info
        } else {
            Stage::Executing
        };
        self.stamp().show(place.taken);
        self.stamp().describe(&description(connection.responder.params()));
        self.stamp().stage(stage);
        self.teller
            .take_up(&self.board, &Stamp::new(self.slot.words()), now);
    }

    /// A request by its name, for the log.
    pub(super) fn name(&self, index: usize) -> String {
        let Some(connection) = &self.places[index].connection else {
            return String::new();
        };
        let about = description(connection.responder.params());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let query = match about.query {
            [] => String::new(),
            query => format!("?{}", text(query)),
        };
        format!(
            ", script '{}' (request: \"{} {}{query}\")",
            text(about.script),
            text(about.method),
            text(about.uri)
        )
    }
}
