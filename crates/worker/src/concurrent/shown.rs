//! Which request the worker's slot shows: the oldest.
//!
//! The master finds slow requests in slots. A request shown long enough to be found slow makes room for the next, so
//! all are found while they run.

use super::super::request::description;
use super::client::{AnswerPhase, RunningRequest};
use super::state::WorkerState;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::RequestStage;
use std::collections::VecDeque;
use std::time::Duration;

const FOUND_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct ShownRequest {
    order: VecDeque<(usize, u32)>,
    now: Option<(usize, u32)>,
    since: Tick,
    due: Option<Tick>,
    /// The start of the last request. Starts are unique, because the master identifies requests by them.
    last_taken: Tick,
}

impl ShownRequest {
    pub(super) fn due(&self) -> Option<Tick> {
        self.due
    }

    /// The start of a request that begins now.
    pub(super) fn taken(&mut self, now: Tick) -> Tick {
        self.last_taken = now.max(self.last_taken + Duration::from_nanos(1));
        self.last_taken
    }
}

impl WorkerState {
    pub(super) fn show_new(&mut self, index: usize, now: Tick) {
        self.shown.order.push_back((index, self.clients[index].serial));
        if self.capacity.in_flight == 1 {
            self.slot_writer().accepted(now);
            self.page.begin_busy(now);
        }
        super::super::samples::begin(&self.page, now);
        self.slot_writer().count_request();
        self.show(now);
    }

    pub(super) fn show_end(&mut self, took: Duration, now: Tick) {
        let micros = took.as_micros() as u64;
        if self.capacity.in_flight == 0 {
            self.shown.order.clear();
            (self.shown.now, self.shown.due) = (None, None);
            self.slot_writer().finished(micros, 0);
            self.page.end_busy(now);
            if !self.is_leaving() {
                self.slot_writer().idle(now);
            }
        } else {
            self.slot_writer().took(micros);
            self.show(now);
        }
    }

    fn is_under_way(&self, (index, serial): (usize, u32)) -> bool {
        let client = &self.clients[index];
        let request = client.request.as_ref().filter(|_| client.serial == serial);
        request.is_some_and(|request| request.answer != AnswerPhase::Endless)
    }

    pub(super) fn show(&mut self, now: Tick) {
        if self.departure.life.is_working() {
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
            if let (true, Some(request)) = (
                self.is_under_way((index, serial)),
                &mut self.clients[index].request,
            ) {
                request.was_found = true;
            }
        }
        let was_found = |index: usize| {
            let request = self.clients[index].request.as_ref();
            request.is_some_and(|request| request.was_found)
        };
        let is_new = |it: &&(usize, u32)| self.is_under_way(**it) && !was_found(it.0);
        let first = self.shown.order.front();
        let Some(next) = self.shown.order.iter().find(is_new).or(first).copied() else {
            if self.capacity.in_flight > 0 {
                (self.shown.now, self.shown.due) = (None, None);
                self.slot_writer().stage(RequestStage::Open);
                self.page.end_busy(now);
            }
            return;
        };
        let Some(&RunningRequest { taken, was_found, .. }) = self.clients[next.0].request.as_ref() else {
            return;
        };
        if self.shown.now != Some(next) {
            self.shown.since = now;
        }
        let slow = self.settings.pool.logs.slow_log.as_ref().map(|log| log.timeout);
        let found = slow.map(|slow| taken.max(self.shown.since) + slow + FOUND_WITHIN);
        self.shown.due = found.filter(|_| self.capacity.in_flight > 1 && !was_found);
        if let Some(due) = self.shown.due {
            self.alarm.set_by(due);
        }
        if self.shown.now.replace(next) == Some(next) {
            return;
        }
        let Some(params) = self.clients[next.0].params() else {
            return;
        };
        // A request already found must not be found again; the master looks only at executing ones.
        let stage = if was_found {
            RequestStage::Info
        } else {
            RequestStage::Executing
        };
        self.slot_writer().show(self.clients.token(next.0), taken);
        self.slot_writer().describe(&description(params));
        self.slot_writer().stage(stage);
        self.page.begin_busy(now);
        self.show_busy(now);
    }

    pub(super) fn name(&self, index: usize) -> String {
        let Some(params) = self.clients[index].params() else {
            return String::new();
        };
        let about = description(params);
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
