//! The master's messages, and the jobs of earlier processes.

use crate::core::schedule::{Fire, Kept, Schedules, spec};
use crate::core::{Becomes, End, Event, Limits, PoolSettings, QueueSettings, Why, verdict};
use crate::listener::Listener;
use crate::process::{LISTENER, Process};
use crate::start::is_there;
use crate::store::{Finished, Fired, ForeignJob, Operation, Output};
use forkyard_config::{Jobs, JobsTold, Overlap, Queue};
use forkyard_protocol::control::millis;
use forkyard_protocol::jobs::{FromJobs, MOST_BYTES, NewJob, ToJobs, query};
use forkyard_sys::Error;
use forkyard_sys::fd::{Received, receive_with, send_with};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

pub(crate) const FOREIGN_MS: u64 = 500;
const BEAT_MS: u64 = 5_000;

/// The connection to the master. Without one, another process continues with the waiting jobs, and this one ends its own.
#[derive(Debug)]
pub(crate) struct Master {
    channel: Option<OwnedFd>,
    /// The daemon ends.
    is_stopping: bool,
}

impl Master {
    pub(crate) fn new(channel: OwnedFd) -> Master {
        Master {
            channel: Some(channel),
            is_stopping: false,
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.channel.is_none()
    }

    /// Whether this process begins nothing new.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_stopping || self.is_gone()
    }

    fn send(&self, message: &FromJobs) -> Result<(), Error> {
        let Some(channel) = &self.channel else {
            return Ok(());
        };
        let bytes = serde_json::to_vec(message).unwrap_or_default();
        send_with(channel.as_fd(), &bytes, &[]).map(drop)
    }

    /// Returns the next message, or `None` if there is none yet. The end of the connection is remembered.
    fn receive(&mut self, buffer: &mut [u8]) -> Option<Received> {
        let channel = self.channel.as_ref()?;
        match receive_with(channel.as_fd(), buffer, false) {
            Ok(received) if received.bytes > 0 => Some(received),
            Err(error) if error.errno == Errno::EAGAIN => None,
            Ok(_) | Err(_) => {
                self.channel = None;
                None
            }
        }
    }
}

impl Process {
    pub(crate) fn fire(&mut self, fire: &Fire) {
        let Some(planned) = self.schedules.find(&fire.name) else {
            return;
        };
        let schedule = &planned.schedule;
        let job = |time: &i64| NewJob {
            key: Some(format!("schedule/{}/{time}", schedule.name)),
            serial: (schedule.overlap == Overlap::Queue).then(|| format!("schedule/{}", schedule.name)),
            ..planned.job()
        };
        let fired = Fired {
            jobs: fire.times.iter().map(job).collect(),
            due_ms: fire.times.last().copied(),
            next_ms: fire.next_ms,
            skips_overlap: schedule.overlap == Overlap::Skip,
            ..Fired::planned(planned)
        };
        self.store.ask(Operation::Fire(Box::new(fired)));
    }

    pub(crate) fn loaded(&mut self, paused: Vec<String>, kept: &[Kept]) {
        for queue in paused {
            let is_paused = true;
            self.events.push_back(Event::Paused { queue, is_paused });
        }
        self.kept_schedules(kept);
        self.store_state.loaded();
        self.connections.look_at_clients();
        self.events.push_back(Event::StoreWell);
    }

    pub(crate) fn kept_schedules(&mut self, kept: &[Kept]) {
        let now_ms = self.now().wall_ms.saturating_sub(self.store_state.ahead_ms);
        let (schedules, complaints) = Schedules::new(&self.jobs.schedules, kept, now_ms);
        for complaint in complaints {
            log::error!("jobs: {complaint}");
        }
        // Stores the next time at once, so that a missed one is noticed.
        for planned in schedules.all() {
            let is_kept = kept
                .iter()
                .any(|kept| kept.name == planned.schedule.name && kept.spec == spec(&planned.schedule));
            if !is_kept {
                self.store.ask(Operation::Fire(Box::new(Fired::planned(planned))));
            }
        }
        self.schedules = schedules;
    }

    pub(crate) fn see_foreign(&mut self, jobs: Vec<ForeignJob>, owners: Vec<String>, paused: &[String]) {
        self.heartbeat.heard();
        for (queue, view) in self.scheduler.view() {
            let is_paused = paused.iter().any(|name| name == queue);
            if is_paused != view.is_paused {
                let queue = queue.to_owned();
                self.events.push_back(Event::Paused { queue, is_paused });
            }
        }
        let (changes, ended) = self.foreign.take(jobs);
        for (group, change) in changes {
            self.events.push_back(Event::Elsewhere(group, change));
        }
        ended.into_iter().for_each(|id| self.show_to_waiters(id));
        // Owners that are gone and left nothing are forgotten; their last writes are visible by now.
        for owner in owners.iter().filter(|owner| !is_there(owner)) {
            if !self.foreign.has_jobs_of(owner) {
                self.store.ask(Operation::Forget(owner.clone()));
            }
        }
        let now_ms = self.now().mono_ms;
        if self.master.is_gone() {
            // The next process takes care of the rest.
            self.heartbeat.due_before(now_ms + FOREIGN_MS);
            return;
        }
        if self.store.is_shared() {
            // Another machine may have ended jobs that clients wait for here.
            self.show_to_all_waiters();
        }
        if self.foreign.is_empty() && owners.is_empty() {
            let often = if self.requests.has_waiters() {
                FOREIGN_MS
            } else {
                BEAT_MS
            };
            if self.store.is_shared() {
                self.heartbeat.due_before(now_ms + often);
            }
            return;
        }
        self.heartbeat.due_before(now_ms + FOREIGN_MS);
        let jobs = &self.jobs;
        let pool_of = |name: &str| jobs.queue(name).map(|queue| queue.pool.clone());
        let (pools, homeless) = self.foreign.ask(pool_of);
        let now = self.now();
        let timeout_ms = |name: &str| jobs.queue(name).map(|queue| millis(queue.timeout));
        let wall_ms = now.wall_ms.saturating_sub(self.store_state.ahead_ms);
        let mut pressed: Vec<(ForeignJob, bool)> = self.foreign.pressed().collect();
        pressed.extend(self.foreign.overdue(wall_ms, now.mono_ms, timeout_ms));
        let terminate = |(job, is_forced): (ForeignJob, bool)| {
            Some(FromJobs::Terminate {
                pool: pool_of(&job.queue)?,
                query: query(job.start.id, job.start.attempt),
                is_forced,
            })
        };
        let pressed: Vec<FromJobs> = pressed.into_iter().filter_map(terminate).collect();
        for pool in pools {
            self.tell_master(&FromJobs::Running { pool });
        }
        pressed.iter().for_each(|message| self.tell_master(message));
        homeless.into_iter().for_each(|job| self.end_orphan(job));
    }

    fn end_orphan(&mut self, job: ForeignJob) {
        let queue = self.jobs.queue(&job.queue);
        let (end, why) = match (
            job.ending.is_cancelled(),
            self.foreign.ended_because(job.start.id),
        ) {
            // A cancelled job is not started again, however its last start ended.
            (true, _) => (End::Cancelled, "it was cancelled"),
            (_, Some(Why::TimedOut)) => (End::TimedOut, "its time was over"),
            _ => (End::Lost, "the process that kept it died"),
        };
        let limits = match end {
            End::TimedOut => queue.map_or(Limits::NONE, limits),
            _ => Limits::NONE,
        };
        let now = self.now();
        let verdict = verdict(&job.start, &limits, end, now.wall_ms);
        self.figures.ended(&job.queue, &job.kind, verdict.outcome, 0);
        log::warn!(
            "jobs: job {} ({}/{}) was under way when the process that kept it died: it {}",
            job.start.id,
            job.queue,
            job.kind,
            match verdict.becomes {
                Becomes::Cancelled => "is cancelled",
                Becomes::Failed | Becomes::Quarantined => "has failed",
                _ => "waits again",
            }
        );
        let number = self.store.ask(Operation::Finish(Box::new(Finished {
            id: job.start.id,
            attempt: job.start.attempt,
            verdict,
            output: Output {
                error: Some(why.to_owned()),
                ..Output::default()
            },
            duration_ms: 0,
        })));
        self.requests.finishes(number, job.start.id);
        if let Some((group, change)) = self.foreign.remove(job.start.id) {
            self.events.push_back(Event::Elsewhere(group, change));
        }
    }

    pub(crate) fn tell_master(&mut self, message: &FromJobs) {
        if let Err(error) = self.master.send(message) {
            log::debug!("jobs: can't send to the master: {error}");
            self.foreign.forget_questions();
        }
    }

    pub(crate) fn hear_master(&mut self) {
        let mut buffer = vec![0; MOST_BYTES];
        // Edge-triggered: read everything.
        while let Some(received) = self.master.receive(&mut buffer) {
            match serde_json::from_slice::<ToJobs<JobsTold>>(&buffer[..received.bytes]) {
                Ok(ToJobs::Settings(told)) => {
                    let (jobs, secret) = *told;
                    let mut sockets = received.descriptors.into_iter();
                    self.take_settings(jobs, sockets.next());
                    self.set_tcp(sockets.next().zip(secret));
                }
                Ok(ToJobs::Stopping) => {
                    self.master.is_stopping = true;
                    self.events.push_back(Event::Drain);
                }
                Ok(ToJobs::Running {
                    pool,
                    queries,
                    is_settled,
                    abandoned,
                }) => {
                    let ended = self.foreign.answered(&pool, &queries, is_settled, abandoned);
                    ended.into_iter().for_each(|job| self.end_orphan(job));
                }
                Ok(ToJobs::Died { pool, query, how }) => self.worker_died(pool, query, how),
                Err(error) => log::error!("jobs: unknown message from the master: {error}"),
            }
        }
        if self.master.is_gone() {
            self.drain();
        }
    }

    /// The master is gone or was replaced: the next process continues with waiting jobs, and this one ends its own.
    fn drain(&mut self) {
        // The next process has the same socket, where clients can also cancel jobs that run here.
        self.stop_listening_tcp();
        self.heartbeat.due_before(0);
        self.events.push_back(Event::Drain);
        for (token, client) in &mut self.connections.clients {
            client.is_last = true;
            self.connections.again.push(*token);
        }
    }

    fn take_settings(&mut self, jobs: Jobs, listener: Option<OwnedFd>) {
        if let Some(listener) = listener {
            self.listener.forget(self.connections.registry());
            match Listener::watch(listener, self.connections.registry(), LISTENER) {
                Ok(listener) => self.listener = listener,
                Err(error) => log::error!("jobs: epoll_ctl: {error}"),
            }
        }
        let kept = self.schedules.kept();
        self.jobs = jobs;
        self.events.push_back(configured(&self.jobs));
        if self.store_state.is_loaded() {
            self.kept_schedules(&kept);
        }
    }
}

pub(crate) fn configured(jobs: &Jobs) -> Event {
    let pools: BTreeMap<&str, u32> = (jobs.queues.iter())
        .map(|queue| (queue.pool.as_str(), queue.workers))
        .collect();
    let pools = pools.into_iter().map(|(name, workers)| PoolSettings {
        name: name.to_owned(),
        workers,
    });
    Event::Configured(pools.collect(), jobs.queues.iter().map(settings).collect())
}

fn settings(queue: &Queue) -> QueueSettings {
    QueueSettings {
        name: queue.name.clone(),
        pool: queue.pool.clone(),
        weight: queue.weight,
        max_running: queue.max_running,
        reserve: queue.reserve,
        timeout_ms: millis(queue.timeout),
        limits: limits(queue),
        rate: queue.rate.map(|rate| (rate.jobs, millis(rate.per))),
    }
}

fn limits(queue: &Queue) -> Limits {
    Limits {
        failures: queue.attempts,
        crashes: queue.crashes,
        first_ms: millis(queue.backoff.first),
        factor: queue.backoff.factor,
        most_ms: millis(queue.backoff.most),
        jitter_percent: queue.backoff.jitter_percent,
    }
}
