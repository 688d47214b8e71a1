//! Jobs that run here: their requests, the results, and the scheduler's actions.

use crate::call::{Call, Press, connect};
use crate::core::{Action, Answer, Becomes, Event, JobId, TaskStatus, Why};
use crate::process::Process;
use crate::store::{Claimed, Finished, Operation, Output, Progress, StepDone};
use forkyard_protocol::jobs::FromJobs;
use forkyard_sys::Error;
use std::collections::{BTreeSet, HashMap, VecDeque};

const DOUBT_MS: u64 = 500;

#[derive(Debug)]
struct Lease {
    job: Claimed,
    call: Option<usize>,
    last: Output,
    step_ms: u64,
    total_ms: u64,
}

#[derive(Debug)]
struct Doubt {
    id: JobId,
    attempt: u32,
    pool: String,
    query: String,
    until_ms: u64,
}

/// The jobs that run here, and their unexplained ends.
#[derive(Debug, Default)]
pub(crate) struct RunningHere {
    leases: HashMap<JobId, Lease>,
    doubts: Vec<Doubt>,
    deaths: VecDeque<(String, String, String)>,
    told_unreached: BTreeSet<String>,
}

impl RunningHere {
    pub(crate) fn begin(&mut self, job: Claimed) {
        let lease = Lease {
            job,
            call: None,
            last: Output::default(),
            step_ms: 0,
            total_ms: 0,
        };
        self.leases.insert(lease.job.start.id, lease);
    }

    pub(crate) fn is_any(&self) -> bool {
        !self.leases.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.doubts.iter().map(|doubt| doubt.until_ms).min()
    }

    fn queue_of(&self, id: JobId) -> String {
        let lease = self.leases.get(&id);
        lease.map(|lease| lease.job.queue.clone()).unwrap_or_default()
    }

    fn end_call(&mut self, token: usize, call: &Call, output: Output, now_ms: u64) -> bool {
        let lease = self.leases.get_mut(&call.id);
        let Some(lease) = lease.filter(|lease| lease.call == Some(token)) else {
            return false;
        };
        lease.call = None;
        lease.step_ms = call.duration_ms(now_ms);
        lease.total_ms += lease.step_ms;
        let why = lease.last.error.take();
        lease.last = output;
        // The reason of the abort explains more than the way it ended.
        lease.last.error = why.or(lease.last.error.take());
        true
    }

    /// Returns how the worker of the ended connection died, if the master has already reported it.
    fn take_death(&mut self, doubt: &Doubt) -> Option<String> {
        let is_its = |(pool, query, _): &_| *pool == doubt.pool && *query == doubt.query;
        let at = self.deaths.iter().position(is_its)?;
        self.deaths.remove(at).map(|(_, _, how)| how)
    }

    /// Returns the end that a worker's death explains. The connection's end may still come.
    fn died(&mut self, pool: String, query: String, how: String) -> Option<(Doubt, String)> {
        const MOST: usize = 64;
        let is_its = |doubt: &Doubt| doubt.pool == pool && doubt.query == query;
        if let Some(at) = self.doubts.iter().position(is_its) {
            return Some((self.doubts.swap_remove(at), how));
        }
        if self.deaths.len() >= MOST {
            self.deaths.pop_front();
        }
        self.deaths.push_back((pool, query, how));
        None
    }

    fn take_old_doubts(&mut self, now_ms: u64) -> Vec<Doubt> {
        let doubts = std::mem::take(&mut self.doubts).into_iter();
        let (old, left) = doubts.partition(|doubt| doubt.until_ms <= now_ms);
        self.doubts = left;
        old
    }
}

impl Process {
    pub(crate) fn perform(&mut self, action: Action) {
        match action {
            Action::Claim(group) => _ = self.store.ask(Operation::Claim(group)),
            Action::Promote => _ = self.store.ask(Operation::Promote),
            Action::Send { id, step } => self.send(id, step),
            Action::Abort { id, why } => self.abort(id, why),
            Action::StepDone {
                id,
                attempt,
                step,
                status,
            } => self.step_done(id, attempt, step, status),
            Action::Finish { id, attempt, verdict } => {
                let Some(lease) = self.running.leases.remove(&id) else {
                    return;
                };
                let is_well = matches!(verdict.becomes, Becomes::Done(_));
                let is_again = matches!(verdict.becomes, Becomes::Again(_));
                let error = lease.last.error.filter(|_| !is_well);
                self.figures
                    .ended(&lease.job.queue, &lease.job.kind, verdict.outcome, lease.total_ms);
                if matches!(verdict.becomes, Becomes::Failed | Becomes::Quarantined) {
                    let why = error.as_deref().unwrap_or("its time was over");
                    let what = match verdict.becomes {
                        Becomes::Quarantined => "is quarantined",
                        _ => "has failed",
                    };
                    let queue = &lease.job.queue;
                    let line = format!(
                        "job {id} ({queue}/{}) {what} at start {attempt}: {why}",
                        lease.job.kind
                    );
                    let now_ms = self.now().mono_ms;
                    self.failures.tell(queue, line, now_ms);
                }
                let number = self.store.ask(Operation::Finish(Box::new(Finished {
                    id,
                    attempt,
                    verdict,
                    output: Output {
                        error,
                        payload: lease.last.payload.filter(|_| is_again),
                        ..lease.last
                    },
                    duration_ms: lease.total_ms,
                })));
                self.requests.finishes(number, id);
            }
        }
    }

    fn send(&mut self, id: JobId, step: usize) {
        let now_ms = self.now().mono_ms;
        let Some(lease) = self.running.leases.get_mut(&id) else {
            return;
        };
        lease.last = Output::default();
        let (queue, attempt) = (lease.job.queue.clone(), lease.job.start.attempt);
        let Some(queue) = self.jobs.queue(&queue) else {
            return self.answered(
                id,
                attempt,
                Answer::Unreached,
                "the queue is not configured any more",
            );
        };
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let most = (size(self.jobs.max_result), size(self.jobs.max_payload));
        let begun = connect(&queue.address)
            .map(|socket| socket.map(|socket| Call::new(socket, queue, &lease.job, step, most, now_ms)));
        let added = begun.and_then(|call| call.map(|call| self.connections.begin_call(call)).transpose());
        match added {
            Ok(Some(token)) => {
                if let Some(lease) = self.running.leases.get_mut(&id) {
                    lease.call = Some(token);
                }
            }
            Ok(None) => self.answered(id, attempt, Answer::Unreached, "the pool's listen queue is full"),
            Err(error) => self.unreached(id, attempt, &error),
        }
    }

    fn unreached(&mut self, id: JobId, attempt: u32, error: &Error) {
        let queue = self.running.queue_of(id);
        if self.running.told_unreached.insert(queue.clone()) {
            log::warn!("jobs: the pool of queue {queue} can't be reached: {error}; trying again");
        }
        self.answered(id, attempt, Answer::Unreached, "the pool can't be reached");
    }

    fn answered(&mut self, id: JobId, attempt: u32, answer: Answer, why: &str) {
        let is_well = matches!(answer, Answer::Ok(_) | Answer::Discard | Answer::Snooze(_));
        if let Some(lease) = self.running.leases.get_mut(&id).filter(|_| !is_well) {
            lease.last.error.get_or_insert_with(|| why.to_owned());
        }
        self.events.push_back(Event::Answered { id, attempt, answer });
    }

    fn abort(&mut self, id: JobId, why: Why) {
        let now_ms = self.now().mono_ms;
        let token = self.running.leases.get(&id).and_then(|lease| lease.call);
        let Some(token) = token else { return };
        if let Some(call) = self.connections.calls.get_mut(&token) {
            call.abort(why, now_ms);
            self.connections.again.push(token);
        }
        if let Some(lease) = self.running.leases.get_mut(&id) {
            lease.last.error = Some(match why {
                Why::TimedOut => "its time was over".to_owned(),
                Why::Cancelled => "it was cancelled".to_owned(),
            });
        }
    }

    fn step_done(&mut self, id: JobId, attempt: u32, step: usize, status: TaskStatus) {
        let Some(lease) = self.running.leases.get(&id) else {
            return;
        };
        // For a step that failed to run, the reason is the result.
        let (output, output_cut) = match (&lease.last.error, status) {
            (Some(error), TaskStatus::TaskError) => (error.clone().into_bytes(), 0),
            _ => (lease.last.result.clone(), lease.last.cut),
        };
        let done = StepDone {
            id,
            attempt,
            step,
            name: lease.job.steps.get(step).cloned().unwrap_or_default(),
            status,
            output,
            output_cut,
            duration_ms: lease.step_ms,
        };
        self.store.ask(Operation::StepDone(done));
    }

    /// Aborts all requests: other machines may start their jobs soon.
    pub(crate) fn end_all_calls(&mut self, now_ms: u64) {
        log::error!(
            "jobs: the store was not reached for too long; {} jobs are ended here, and may be started by another machine",
            self.running.leases.len()
        );
        for (token, call) in &mut self.connections.calls {
            call.abort(Why::Cancelled, now_ms);
            self.connections.again.push(*token);
        }
    }

    pub(crate) fn call_over(&mut self, token: usize, call: &Call, answer: Answer, output: Output) {
        let now_ms = self.now().mono_ms;
        let is_told = output.payload.is_none();
        if !self.running.end_call(token, call, output, now_ms) {
            return;
        }
        if answer != Answer::Unreached {
            let queue = self.running.queue_of(call.id);
            self.running.told_unreached.remove(&queue);
        }
        let answer = match answer {
            // The pool's workers end with the daemon, and may report failures.
            Answer::Failed | Answer::Snooze(_)
                if is_told && (self.master.is_stopping() || self.heartbeat.is_cut_off()) =>
            {
                Answer::Stopped
            }
            answer => answer,
        };
        self.answered(call.id, call.attempt, answer, "it failed");
    }

    pub(crate) fn call_broken(&mut self, token: usize, call: &Call, output: Output) {
        let now_ms = self.now().mono_ms;
        if !self.running.end_call(token, call, output, now_ms) {
            return;
        }
        if self.master.is_stopping() {
            return self.answered(call.id, call.attempt, Answer::Stopped, "the daemon ended");
        }
        if self.heartbeat.is_cut_off() {
            let why = "the machine was cut off from the store";
            return self.answered(call.id, call.attempt, Answer::Stopped, why);
        }
        let doubt = Doubt {
            id: call.id,
            attempt: call.attempt,
            pool: call.pool.clone(),
            query: call.query(),
            until_ms: now_ms + DOUBT_MS,
        };
        match self.running.take_death(&doubt) {
            Some(how) => self.answered(doubt.id, doubt.attempt, Answer::Crashed, &how),
            None => self.running.doubts.push(doubt),
        }
    }

    pub(crate) fn worker_died(&mut self, pool: String, query: String, how: String) {
        if let Some((doubt, how)) = self.running.died(pool, query, how) {
            self.answered(doubt.id, doubt.attempt, Answer::Crashed, &how);
        }
    }

    pub(crate) fn poll_calls(&mut self, now_ms: u64) {
        for doubt in self.running.take_old_doubts(now_ms) {
            let why = "the connection ended before the answer did";
            self.answered(doubt.id, doubt.attempt, Answer::Crashed, why);
        }
        let is_due = |call: &Call| call.deadline().is_some_and(|due| due <= now_ms);
        let due = (self.connections.calls.iter()).filter(|(_, call)| is_due(call));
        let due: Vec<usize> = due.map(|(token, _)| *token).collect();
        for token in due {
            let Some(call) = self.connections.calls.get_mut(&token) else {
                continue;
            };
            if let Some((percent, text)) = call.take_progress(now_ms) {
                self.store.ask(Operation::Progress(Progress {
                    id: call.id,
                    attempt: call.attempt,
                    queues: None,
                    percent,
                    text,
                }));
            }
            match call.press(now_ms) {
                Press::Terminate { is_forced } => {
                    let message = FromJobs::Terminate {
                        pool: call.pool.clone(),
                        query: call.query(),
                        is_forced,
                    };
                    if self.master.is_gone() {
                        // The next process has a master.
                        let (id, attempt) = (call.id, call.attempt);
                        self.store.ask(Operation::Press {
                            id,
                            attempt,
                            is_forced,
                        });
                    }
                    self.tell_master(&message);
                }
                Press::GiveUp => {
                    if let Some(mut call) = self.connections.calls.remove(&token) {
                        log::error!("jobs: job {} does not end: its connection is closed", call.id);
                        let output = call.remains();
                        self.call_broken(token, &call, output);
                    }
                }
                Press::Nothing => {}
            }
        }
    }
}
