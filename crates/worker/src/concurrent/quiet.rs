//! Which requests count against a worker's limit: those without an answer so far, and those that have sent something in
//! the last second. Idle streams and WebSockets only cost a descriptor, so descriptors limit them.
//!
//! Requests become quiet only if the worker is full.

use super::leave::Life;
use super::state::WorkerState;
use forkyard_base::tick::Tick;
use forkyard_config::Requests;
use forkyard_scoreboard::layout::slot;
use forkyard_scoreboard::{header, slot_reader};
use forkyard_sys::socket::{Readiness, wait};
use std::os::fd::AsFd;
use std::time::Duration;

const QUIET_AFTER: Duration = Duration::from_secs(1);
pub(super) const FULL_FOR: Duration = Duration::from_secs(2);
const SAID_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Quiet {
    count: usize,
    most: usize,
    due: Option<Tick>,
    full_since: Option<Tick>,
}

impl Quiet {
    pub(super) fn new(most: usize) -> Quiet {
        Quiet {
            count: 0,
            most,
            due: None,
            full_since: None,
        }
    }

    pub(super) fn has_room(&mut self) {
        self.full_since = None;
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn ends(&mut self) {
        self.count = self.count.saturating_sub(1);
        if self.count + 1 == self.most {
            self.due = None;
        }
    }

    pub(super) fn due(&self) -> Option<Tick> {
        self.due
    }

    fn select(&mut self, answers: impl IntoIterator<Item = (usize, Tick)>, now: Tick) -> Vec<usize> {
        let mut selected = Vec::new();
        let mut due = now + QUIET_AFTER;
        for (index, sent) in answers {
            if sent + QUIET_AFTER > now {
                due = due.min(sent + QUIET_AFTER);
            } else if self.count < self.most {
                self.count += 1;
                selected.push(index);
            }
        }
        self.due = Some(due);
        if !selected.is_empty() {
            self.full_since = None;
        }
        selected
    }

    fn is_full_for_long(&mut self, now: Tick) -> bool {
        let since = *self.full_since.get_or_insert(now);
        now.since(since) >= FULL_FOR
    }
}

impl WorkerState {
    pub(super) fn is_full(&self) -> bool {
        self.occupied().saturating_sub(self.capacity.quiet.count()) >= self.capacity.limit
    }

    /// Threads stay occupied anyway, and workers that pass requests on are limited by descriptors.
    fn leaves_out_quiet(&self) -> bool {
        self.dispatch.is_none() && !self.accepting.concentrates()
    }

    pub(super) fn was_sent(&mut self, index: usize, now: Tick) {
        let Some(request) = &mut self.clients[index].request else {
            return;
        };
        request.sent = now;
        if std::mem::take(&mut request.is_quiet) {
            self.capacity.quiet.ends();
            self.settle(now);
            self.publish_load();
        }
    }

    /// In a full worker: finds requests that have become quiet, and logs if no worker has room for waiting requests.
    pub(super) fn settle(&mut self, now: Tick) {
        if !self.is_full() {
            return self.capacity.quiet.has_room();
        }
        if self.capacity.quiet.due().is_none_or(|due| due <= now) {
            let may = self.leaves_out_quiet();
            let requests = self.clients.iter_mut().enumerate();
            let requests = requests.filter_map(|(index, client)| Some((index, client.request.as_mut()?)));
            let mut answers: Vec<_> = requests
                .filter(|(_, request)| may && request.has_begun() && !request.is_quiet)
                .collect();
            let selected = self
                .capacity
                .quiet
                .select(answers.iter().map(|(index, request)| (*index, request.sent)), now);
            for (index, request) in &mut answers {
                request.is_quiet = selected.contains(index);
            }
            if !selected.is_empty() {
                self.publish_load();
            }
            if self.is_full() && self.capacity.quiet.is_full_for_long(now) {
                self.say_full(now);
            }
        }
        if let Some(due) = self.capacity.quiet.due().filter(|_| self.is_full()) {
            self.alarm.set_by(due);
        }
    }

    pub(super) fn mind_departure(&mut self, now: Tick) {
        if !matches!(self.departure.life, Life::Finishing | Life::LastWork)
            || self.departure.due.is_none_or(|due| due > now)
        {
            return;
        }
        self.departure.due = Some(now + FULL_FOR);
        if self.is_worth_saying(now) {
            log::warn!(
                "no worker takes requests, and requests wait: each is on its way out or full (workers: {}); this one ends with the \
                 last of its requests (left: {}), and the next is made then",
                self.page.board.slots(),
                self.capacity.in_flight
            );
        }
    }

    fn is_worth_saying(&self, now: Tick) -> bool {
        if self.router.is_there() || !self.has_waiting() {
            return false;
        }
        let is_used = |index: &usize| header::used(self.page.board.header(), *index);
        let slots = self.page.board.slots();
        // The master may create more, and new workers have not reported yet.
        if !(0..slots).all(|index| is_used(&index))
            || self.page.siblings().any(|it| it.has_room || !it.is_told)
        {
            return false;
        }
        let pages = (0..slots).filter_map(|index| self.page.board.slot(index));
        let said = pages
            .map(|page| slot_reader::word(page, slot::SAID_FULL))
            .max()
            .unwrap_or(0);
        if said > 0 && now.since(Tick::from_nanos(said)) < SAID_AGAIN {
            return false;
        }
        self.slot_writer().said_full(now);
        true
    }

    fn say_full(&self, now: Tick) {
        if self.is_leaving() || !self.is_worth_saying(now) {
            return;
        }
        let slots = self.page.board.slots();
        let (mut open, mut quiet) = (0, 0);
        for load in self.page.siblings().chain([self.capacity.load(false)]) {
            open += u64::from(load.in_flight);
            quiet += u64::from(load.quiet);
        }
        let busy = open.saturating_sub(quiet);
        let limit = match self.settings.pool.application.traits().requests {
            Requests::Loop => "concurrency",
            Requests::Threads => "threads",
            Requests::One | Requests::Forwarded => "descriptors",
        };
        log::warn!(
            "all workers are full, and requests wait: {slots} workers have {busy} requests ({limit}: {} each), and {quiet} idle \
             streams and WebSockets (half of a worker's descriptors: {} each)",
            self.capacity.limit,
            self.capacity.quiet.most
        );
    }

    fn has_waiting(&self) -> bool {
        let is_ready = |socket: std::os::fd::BorrowedFd<'_>| {
            wait(socket, Readiness::Readable, Duration::ZERO).unwrap_or(false)
        };
        let sockets = [&self.sources.listener, &self.sources.queue_out]
            .into_iter()
            .chain(&self.sources.http);
        !self.clients.waiting.is_empty() || sockets.map(AsFd::as_fd).any(is_ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn an_answer_is_quiet_a_second_after_it_has_last_sent_something() {
        let mut quiet = Quiet::new(10);
        assert_eq!(quiet.due(), None, "the first look is at once");
        let selected = quiet.select([(3, at(1000)), (4, at(1001)), (5, at(1500))], at(2000));
        assert_eq!((selected, quiet.count()), (vec![3], 1));
        assert_eq!(quiet.due(), Some(at(2001)), "when the next one is");
        let selected = quiet.select([(4, at(2000)), (5, at(1500))], at(2100));
        assert_eq!((selected, quiet.due()), (vec![], Some(at(2500))));
        assert!(quiet.select([], at(3000)).is_empty());
        assert_eq!(
            quiet.due(),
            Some(at(4000)),
            "no answer that begins now is quiet before"
        );
        quiet.ends();
        assert_eq!(quiet.count(), 0);
    }

    #[test]
    fn a_worker_says_that_it_is_full_once_nothing_has_changed_for_a_while() {
        let mut quiet = Quiet::new(10);
        assert!(!quiet.is_full_for_long(at(1000)) && !quiet.is_full_for_long(at(2999)));
        assert!(quiet.is_full_for_long(at(3000)));
        quiet.has_room();
        assert!(!quiet.is_full_for_long(at(4000)));
        quiet.select([(0, at(1000))], at(5000));
        assert!(
            !quiet.is_full_for_long(at(6000)),
            "one has become quiet meanwhile"
        );
        quiet.select([], at(7000));
        assert!(quiet.is_full_for_long(at(8000)));
    }

    #[test]
    fn no_more_are_quiet_than_there_are_descriptors_for() {
        let mut quiet = Quiet::new(2);
        let selected = quiet.select([0, 1, 2].map(|index| (index, at(0))), at(5000));
        assert_eq!((selected, quiet.count()), (vec![0, 1], 2));
        quiet.ends();
        assert_eq!(quiet.due(), None, "the next one may be quiet at once");
        assert_eq!(quiet.select([(2, at(0))], at(5000)), [2]);
    }
}
