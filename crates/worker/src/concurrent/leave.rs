//! How a worker with several requests exits, creates a preloader and does out-of-band work.

use super::super::memory;
use super::super::memory::Occasion;
use super::super::out_of_band::{WorkError, report};
use super::super::promotion::{self, MasterMessage, Promotion};
use super::client::Client;
use super::dispatch::Dispatch;
use super::events::EventKind;
use super::quiet::FULL_FOR;
use super::state::{WorkerState, has_program};
use fastcgi::Phase;
use forkyard_base::tick::Tick;
use forkyard_protocol::accept_notify::RestartReason;
use forkyard_protocol::counters::ExitCause;
use forkyard_scoreboard::RequestStage;
use forkyard_sys::clock;
use std::os::fd::AsFd;

/// The life of a worker. Work is out-of-band work of the application.
///
/// ```text
///   Serving ──── leave ────▶ Finishing ── nothing left ──▶ Done
///     │ ▲                        ▲
///     ▼ │ end of work            │ end of work
///   Working ──── leave ────▶ LastWork
/// ```
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    #[default]
    Serving,
    Working,
    /// It takes no more requests.
    Finishing,
    LastWork,
    Done,
}

impl Life {
    pub(super) fn is_leaving(self) -> bool {
        matches!(self, Life::Finishing | Life::LastWork | Life::Done)
    }

    pub(super) fn is_working(self) -> bool {
        matches!(self, Life::Working | Life::LastWork)
    }

    fn leave(self) -> Life {
        match self {
            Life::Serving => Life::Finishing,
            Life::Working => Life::LastWork,
            Life::Finishing | Life::LastWork | Life::Done => self,
        }
    }

    fn end_work(self) -> Life {
        match self {
            Life::Working => Life::Serving,
            Life::LastWork => Life::Finishing,
            Life::Serving | Life::Finishing | Life::Done => self,
        }
    }
}

/// How and when the worker exits.
#[derive(Debug, Default)]
pub(super) struct Departure {
    pub life: Life,
    /// When to look whether requests wait that no worker takes.
    pub due: Option<Tick>,
    /// The descriptors for the preloader that this worker becomes at its end.
    pub promotion: Option<Promotion>,
    pub exit_code: i32,
}

impl WorkerState {
    pub(super) fn is_leaving(&self) -> bool {
        self.departure.life.is_leaving()
    }

    pub(super) fn hear_master(&mut self, now: Tick) {
        match promotion::hear(self.sources.stop_pipe.as_fd(), self.settings.refork_at.is_some()) {
            MasterMessage::Terminate => return self.end_longest(now),
            MasterMessage::Promote(promotion) => self.departure.promotion = Some(promotion),
            MasterMessage::Finish => {}
        }
        let _ = self.sources.epoll.delete(&self.sources.stop_pipe);
        self.leave(now);
        self.departure.due = None;
    }

    pub(super) fn leave(&mut self, now: Tick) {
        if self.is_leaving() {
            return;
        }
        self.departure.life = self.departure.life.leave();
        self.publish_load();
        if self.capacity.in_flight == 0 {
            // The master no longer counts it as available, even if the application still runs.
            self.slot_writer().stage(RequestStage::Finished);
            if !self.router.is_there() {
                self.show_busy(now);
            }
        }
        self.departure.due = Some(now + FULL_FOR);
        self.alarm.set_by(now);
        if !self.router.is_there() {
            let _ = self.sources.epoll.delete(&self.sources.queue_out);
        }
        self.update_listening(now);
        self.send_away(&self.clients.idle(), now);
    }

    /// Exits after `max_requests` or `memory_limit`.
    pub(super) fn check_limits(&mut self, now: Tick) {
        if self.wear.is_candidate() {
            self.notifier.tell_mold_candidate();
        }
        self.limit_memory(now);
        if self.wear.is_worn_out() {
            self.leave(now);
        }
    }

    /// Checks `memory_limit` once a second. With a router, the router decides.
    pub(super) fn limit_memory(&mut self, now: Tick) {
        if self.router.is_there() {
            return;
        }
        let Some(used) = self.wear.beyond_limit(Occasion::Second) else {
            return;
        };
        if has_program(&self.settings.pool) {
            log::info!("the application uses {used} MiB, more than memory_limit");
            return self.notifier.ask_restart(RestartReason::Memory, now, now);
        }
        if !self.is_leaving() {
            memory::say_replaced(used);
            self.slot_writer().leaving(ExitCause::Memory, None);
            self.leave(now);
        }
    }

    pub(super) fn memory_due(&self) -> Option<Tick> {
        let is_limited = self.capacity.in_flight > 0 && !self.is_leaving();
        self.wear.due().filter(|_| is_limited)
    }

    pub(super) fn look_if_done(&mut self) {
        if !self.is_leaving() && self.page.must_retire() {
            self.leave(clock::now());
        }
        if self.departure.life != Life::Finishing {
            return;
        }
        while let Some(index) = self.clients.waiting.pop_front() {
            if self.clients[index].is_in(Phase::Waiting) {
                self.start(index, clock::now());
                self.watch(index);
            }
        }
        let works_on = self.dispatch.as_ref().is_some_and(Dispatch::is_waited_for);
        let is_done = |client: &Client| client.is_free() || client.is_in(Phase::Idle);
        if works_on || !self.clients.iter().all(is_done) {
            return;
        }
        self.departure.life = Life::Done;
        self.router.hand_back_all(&mut self.scratch);
        for index in self.clients.idle() {
            self.close(index);
        }
        self.tell(EventKind::End, u64::from(self.departure.promotion.is_some()));
    }

    pub(super) fn ask_for_work(&mut self) {
        self.router.want = self.router.want.ask();
        if self.router.is_there() {
            return;
        }
        if let Some(due) = self.router.want.due() {
            self.alarm.set_by(due);
        }
    }

    /// Starts out-of-band work if the worker has nothing else to do and no sibling is working.
    pub(super) fn look_for_work(&mut self, events: usize, now: Tick) {
        let is_due = self.router.want.due().is_some_and(|due| due <= now) && !self.router.is_there();
        if !is_due || self.occupied() > 0 || self.departure.life != Life::Serving {
            return;
        }
        if events > 1 || !self.events.is_empty() {
            return self.alarm.set_by(now);
        }
        if self.router.want.claims(&self.page, &mut self.notifier, now) {
            return self.is_at_work();
        }
        if let Some(due) = self.router.want.due() {
            self.alarm.set_by(due);
        }
    }

    pub(super) fn is_at_work(&mut self) {
        self.departure.life = Life::Working;
        self.publish_load();
        self.tell(EventKind::Work, 0);
    }

    pub(super) fn out_of_band_done(&mut self, outcome: Result<(), WorkError>) {
        if !self.departure.life.is_working() {
            return;
        }
        let is_well = report(outcome);
        let now = clock::now();
        self.departure.life = self.departure.life.end_work();
        self.slot_writer().finished(0, 0);
        self.page.idle(now);
        self.publish_load();
        self.router.end_work(is_well);
        self.alarm.set_by(now);
    }
}
