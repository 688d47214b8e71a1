//! Timeouts: one timer in the worker's epoll.

use super::client::ClientPhase;
use super::events::EventKind;
use super::state::WorkerState;
use crate::scoreboard::counters::ExitCause;
use crate::tick::Tick;
use crate::worker::timeout_response;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Rings no later than the earliest time that it was set to.
#[derive(Debug)]
pub(super) struct Alarm {
    timer: TimerFd,
    set: Option<Tick>,
}

impl Alarm {
    pub(super) fn new() -> nix::Result<Alarm> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        Ok(Alarm { timer, set: None })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    pub(super) fn set_by(&mut self, due: Tick) {
        if self.set.is_some_and(|set| set <= due) {
            return;
        }
        self.set = Some(due);
        let due = TimeSpec::from_duration(Duration::from_nanos(due.as_nanos().max(1)));
        let set = self
            .timer
            .set(Expiration::OneShot(due), TimerSetTimeFlags::TFD_TIMER_ABSTIME);
        if let Err(errno) = set {
            log::error!("a timer can't be set: timerfd_settime: {errno}");
        }
    }

    fn silence(&mut self) {
        self.set = None;
        let _ = nix::unistd::read(&self.timer, &mut [0; 8]);
    }
}

impl WorkerState {
    pub(super) fn ring(&mut self, now: Tick) {
        self.alarm.silence();
        if self.insists_at.is_some_and(|due| due <= now) {
            self.listener_ready = true;
        }
        if self.pause.end(now) {
            self.listener_ready = true;
        }
        for index in 0..self.clients.len() {
            let client = &self.clients[index];
            if client.expires.is_some_and(|due| due <= now) {
                self.expire(index, "execution timed out", now);
            }
            if self.clients[index].deadline.is_some_and(|due| due <= now) {
                self.deadline(index);
            }
        }
        self.show(now);
        self.settle(now);
        self.mind_departure(now);
        if self.memory_due().is_some_and(|due| due <= now) {
            match self.router.is_some() {
                true => self.measure(),
                false => self.limit_memory(now),
            }
        }
        let clients = self.clients.iter();
        let due = clients.flat_map(|client| client.deadline.into_iter().chain(client.expires));
        let others = [
            self.insists_at.filter(|due| *due > now),
            self.pause.deadline(),
            self.want.due().filter(|due| *due > now && !self.is_working),
            self.shown.due(),
            self.departure_due.filter(|due| *due > now),
            self.quiet.due().filter(|due| *due > now && self.is_full()),
            self.memory_due().filter(|due| *due > now),
        ];
        if let Some(due) = due.chain(others.into_iter().flatten()).min() {
            self.alarm.set_by(due);
        }
    }

    fn deadline(&mut self, index: usize) {
        let timeout = self.settings.pool.serving.client_timeout.as_secs_f64();
        match self.clients[index].phase {
            ClientPhase::Idle => {
                self.close(index);
                self.publish_kept();
            }
            ClientPhase::Reading => {
                if !self.clients[index].has_its_answer() {
                    log::warn!(
                        "a connection was closed: the client did not complete its request within {timeout} s"
                    );
                }
                self.close(index);
            }
            ClientPhase::Rest | ClientPhase::Lingering => self.close(index),
            ClientPhase::Serving | ClientPhase::Ending => self.lose_client(index),
            ClientPhase::Free | ClientPhase::Waiting => self.clients[index].deadline = None,
        }
    }

    /// Ends the longest request for an operator; an idle stream or WebSocket only if there is no other.
    pub(super) fn end_longest(&mut self, now: Tick) {
        let serving =
            (0..self.clients.len()).filter(|index| self.clients[*index].phase == ClientPhase::Serving);
        let longest = serving.min_by_key(|index| {
            let client = &self.clients[*index];
            (client.is_quiet || client.is_endless, client.taken)
        });
        match longest {
            Some(index) => self.expire(index, "is ended by forkyard terminate", now),
            None => log::info!("there is no request to end any more"),
        }
    }

    /// Answers a request that timed out or is ended by an operator, and notifies the application. `why`: for the log.
    fn expire(&mut self, index: usize, why: &str, now: Tick) {
        let client = &mut self.clients[index];
        client.expires = None;
        if client.phase != ClientPhase::Serving {
            return;
        }
        let took = now.since(client.taken).as_secs_f64();
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
        let token = self.token(index);
        self.tell(EventKind::Expired, token);
        if self.clients[index].has_begun || self.clients[index].is_gone {
            self.break_off(index, now);
        } else {
            let text = timeout_response::text();
            if let Some(recorder) = &mut self.clients[index].recorder {
                recorder.output(text.as_bytes());
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
