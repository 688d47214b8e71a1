//! Which of several requests the worker's slot shows: the one that has been under way for the longest.
//!
//! The master looks for requests that are slow by what slots show. One that was shown for long enough to be found slow makes
//! room for the next, so that each is found.

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

    /// Shows the request that is to be shown.
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
        let slow = self.settings.pool.slow_log.as_ref().map(|log| log.timeout);
        let found =
            |desk: &Desk, request: (usize, u32)| Some(desk.places[request.0].taken + slow? + FOUND_WITHIN);
        let is_fresh = |request: &(usize, u32)| {
            self.is_under_way(*request) && found(self, *request).is_none_or(|due| due > now)
        };
        let first = self.shown.order.front();
        let Some(next) = self.shown.order.iter().find(|it| is_fresh(it)).or(first).copied() else {
            return;
        };
        let others = self.in_flight > 1;
        self.shown.due = found(self, next).filter(|due| others && *due > now);
        if let Some(due) = self.shown.due {
            self.alarm.set_by(due);
        }
        if self.shown.now == Some(next) {
            return;
        }
        self.shown.now = Some(next);
        let place = &self.places[next.0];
        let Some(connection) = &place.connection else {
            return;
        };
        self.stamp().show(place.taken);
        self.stamp().describe(&description(connection.responder.params()));
        self.stamp().stage(Stage::Executing);
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
        format!(" \"{} {}\"", text(about.method), text(about.uri))
    }
}
