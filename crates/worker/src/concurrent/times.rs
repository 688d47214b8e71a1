//! Timeouts: one timer in the worker's epoll.

use super::accepting::Schedule;
use super::client::AnswerPhase;
use super::events::EventKind;
use super::state::WorkerState;
use crate::timeout_response;
use fastcgi::Phase;
use forkyard_base::tick::Tick;
use forkyard_protocol::counters::ExitCause;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Alarm {
    timer: TimerFd,
    schedule: Schedule,
}

impl Alarm {
    pub(super) fn new() -> nix::Result<Alarm> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let schedule = Schedule::default();
        Ok(Alarm { timer, schedule })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    pub(super) fn set_by(&mut self, due: Tick) {
        if !self.schedule.set_by(due) {
            return;
        }
        let due = TimeSpec::from_duration(Duration::from_nanos(due.as_nanos().max(1)));
        let set = self
            .timer
            .set(Expiration::OneShot(due), TimerSetTimeFlags::TFD_TIMER_ABSTIME);
        if let Err(errno) = set {
            log::error!("a timer can't be set: timerfd_settime: {errno}");
        }
    }

    fn silence(&mut self) {
        self.schedule.ring();
        let _ = nix::unistd::read(&self.timer, &mut [0; 8]);
    }
}

impl WorkerState {
    pub(super) fn ring(&mut self, now: Tick) {
        self.alarm.silence();
        self.accepting.ring(now);
        for index in 0..self.clients.count() {
            if self.clients[index].expires().is_some_and(|due| due <= now) {
                self.expire(index, "execution timed out", now);
            }
            if self.clients[index].deadline().is_some_and(|due| due <= now) {
                self.deadline(index, now);
            }
        }
        self.show(now);
        self.settle(now);
        self.mind_departure(now);
        if self.memory_due().is_some_and(|due| due <= now) {
            match self.router.is_there() {
                true => self.measure(),
                false => self.limit_memory(now),
            }
        }
        let clients = self.clients.iter();
        let due = clients.flat_map(|client| client.deadline().into_iter().chain(client.expires()));
        let others = [
            self.accepting.due(now),
            self.router
                .want
                .due()
                .filter(|due| *due > now && !self.departure.life.is_working()),
            self.shown.due(),
            self.departure.due.filter(|due| *due > now),
            self.capacity
                .quiet
                .due()
                .filter(|due| *due > now && self.is_full()),
            self.memory_due().filter(|due| *due > now),
        ];
        if let Some(due) = due.chain(others.into_iter().flatten()).min() {
            self.alarm.set_by(due);
        }
    }

    /// Sets the alarm for the connection's deadline.
    pub(super) fn heed_deadline(&mut self, index: usize) {
        if let Some(due) = self.clients[index].deadline() {
            self.alarm.set_by(due);
        }
    }

    fn deadline(&mut self, index: usize, now: Tick) {
        if self.clients[index].request.is_some() || self.clients[index].is_in(Phase::Ending) {
            return self.lose_client(index);
        }
        let was_idle = self.clients[index].is_in(Phase::Idle);
        let event = self.connection(index).and_then(|it| it.expire());
        self.follow(index, event, now);
        if was_idle {
            self.publish_kept();
        }
    }

    /// Ends the longest request for an operator; an idle stream or WebSocket only if there is no other.
    pub(super) fn end_longest(&mut self, now: Tick) {
        let clients = self.clients.iter().enumerate();
        let serving = clients.filter_map(|(index, client)| Some((index, client.request.as_ref()?)));
        let longest = serving.min_by_key(|(_, request)| {
            let is_left_alone = request.is_quiet || request.answer == AnswerPhase::Endless;
            (is_left_alone, request.taken)
        });
        match longest {
            Some((index, _)) => self.expire(index, "is ended by forkyard terminate", now),
            None => log::info!("there is no request to end any more"),
        }
    }

    /// Answers a request that timed out or is ended by an operator, and notifies the application. `why`: for the log.
    fn expire(&mut self, index: usize, why: &str, now: Tick) {
        let Some(request) = &mut self.clients[index].request else {
            return;
        };
        request.expires = None;
        request.is_timed_out = true;
        let has_begun = request.has_begun();
        let took = now.since(request.taken).as_secs_f64();
        // A thread can't be stopped; the process exits after its other requests.
        let is_stuck = self.dispatch.is_some();
        log::warn!(
            "child {}{} {why} ({took:.6} sec), {}",
            std::process::id(),
            self.name(index),
            if is_stuck {
                "the worker ends after its other requests"
            } else {
                "cancelled"
            }
        );
        let token = self.clients.token(index);
        self.tell(EventKind::Expired, token);
        if has_begun || self.clients[index].is_gone() {
            self.break_off(index, now);
        } else {
            let text = timeout_response::text();
            if let Some(request) = &mut self.clients[index].request {
                request.status.take(text.as_bytes());
                if let Some(recorder) = &mut request.recorder {
                    recorder.output(text.as_bytes());
                }
            }
            self.put(index, text.as_bytes());
            self.finish(index, now);
        }
        if is_stuck {
            self.slot_writer().leaving(ExitCause::Terminated, None);
            self.leave(now);
        }
    }
}
