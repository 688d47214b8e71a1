//! Clients' requests to the store, and their answers.

use crate::commands::{self, For, Plan};
use crate::core::schedule::Planned;
use crate::core::{Event, JobId};
use crate::master::FOREIGN_MS;
use crate::process::Process;
use crate::store::sql::Notice;
use crate::store::{Changes, Operation, Reply, State, StoreEvent};
use forkyard_protocol::control::millis;
use forkyard_protocol::jobs::{HeldKeys, JobView, JobsAnswer, QueueView, Stats};
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingReply {
    client: usize,
    what: For,
    id: JobId,
}

/// The clients' requests that the store works on, and the clients that wait for jobs. The numbers are the store's.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    asked: HashMap<u64, PendingReply>,
    /// What the portions before have changed.
    portions: HashMap<u64, (u64, Vec<JobId>, Option<HeldKeys>)>,
    waiters: BTreeMap<JobId, Vec<usize>>,
    wait_limits: HashMap<usize, (u64, JobId)>,
    push_limits: BTreeSet<(u64, u64)>,
    finishing: HashMap<u64, JobId>,
}

const NOBODY: usize = usize::MAX;

impl Requests {
    fn add(&mut self, number: u64, client: usize, what: For, id: JobId) {
        self.asked.insert(number, PendingReply { client, what, id });
    }

    /// The end of a job is being written under this number; its waiters see it then.
    pub(crate) fn finishes(&mut self, number: u64, id: JobId) {
        if self.waiters.contains_key(&id) {
            self.finishing.insert(number, id);
        }
    }

    pub(crate) fn has_waiters(&self) -> bool {
        !self.waiters.is_empty()
    }

    pub(crate) fn forget_client(&mut self, client: usize) {
        self.wait_limits.remove(&client);
    }

    fn stop_waiting(&mut self, client: usize, id: JobId) -> bool {
        self.wait_limits.remove(&client);
        let Some(waiting) = self.waiters.get_mut(&id) else {
            return false;
        };
        let count = waiting.len();
        waiting.retain(|other| *other != client);
        let has_waited = waiting.len() < count;
        if waiting.is_empty() {
            self.waiters.remove(&id);
        }
        has_waited
    }

    /// Whether a waiting client gets this answer and stops waiting. Several lookups may find the end at once; the first
    /// one answers.
    fn ends_wait(&mut self, asked: PendingReply, reply: &Reply) -> bool {
        let has_ended = match reply {
            Reply::Show(Some(job)) => State::of_name(&job.state).is_some_and(State::is_end),
            _ => true,
        };
        has_ended && self.stop_waiting(asked.client, asked.id)
    }

    /// The clients that have waited for too long, and their jobs. They wait no longer.
    fn take_overdue(&mut self, now_ms: u64) -> Vec<(usize, JobId)> {
        let over = self.wait_limits.iter().filter(|(_, (due, _))| *due <= now_ms);
        let mut over: Vec<(usize, JobId)> = over.map(|(client, (_, id))| (*client, *id)).collect();
        over.retain(|(client, id)| self.stop_waiting(*client, *id));
        over
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        let push = self.push_limits.first().map(|(due, _)| *due);
        let waits = self.wait_limits.values().map(|(due, _)| *due);
        waits.chain(push).min()
    }
}

impl Process {
    pub(crate) fn want(&mut self, client: usize, wanted: Plan) {
        let refusal = self.refusal();
        match wanted {
            Plan::Store(_, For::Stats) if refusal.is_some() => {
                let answer = self.stats(client);
                self.connections.answer(client, &answer);
            }
            wanted if refusal.is_some() && (wanted.is_of_store() || !self.store_state.is_loaded()) => {
                self.connections
                    .answer(client, &JobsAnswer::not_now(refusal.unwrap_or_default()));
            }
            Plan::Push(jobs, limit_ms) => {
                let limit_ms = limit_ms.unwrap_or_else(|| millis(self.jobs.push_timeout));
                let until_ms = self.now().mono_ms.saturating_add(limit_ms);
                let number = self.ask(client, For::Answer, Operation::Push(jobs));
                self.requests.push_limits.insert((until_ms, number));
            }
            Plan::Store(operation, what) => _ = self.ask(client, what, operation),
            Plan::Wait(Operation::Show(id), limit_ms) => self.wait_for(client, id, limit_ms),
            Plan::Wait(show, limit_ms) => _ = self.ask(client, For::Await(limit_ms), show),
            Plan::Schedules => {
                let schedules = self.schedules.all().iter().map(Planned::view).collect();
                self.connections
                    .answer(client, &JobsAnswer::Schedules { schedules });
            }
            Plan::Kinds => {
                let kinds = self.figures.kinds(&self.jobs);
                self.connections.answer(client, &JobsAnswer::Kinds { kinds });
            }
            Plan::Connections => {
                let now_ms = self.now().mono_ms;
                let clients = self.connections.clients.iter();
                let mut connections: Vec<_> = clients
                    .map(|(token, client)| client.view(*token, now_ms))
                    .collect();
                connections.sort_by_key(|connection| connection.id);
                self.connections
                    .answer(client, &JobsAnswer::Connections { connections });
            }
            Plan::RunNow(name) => match self.schedules.find(&name) {
                Some(planned) => {
                    let jobs = vec![planned.job()];
                    self.ask(client, For::Answer, Operation::Push(jobs));
                }
                None => self.connections.answer(
                    client,
                    &JobsAnswer::error(format!("there is no schedule \"{name}\"")),
                ),
            },
        }
    }

    fn ask(&mut self, client: usize, what: For, operation: Operation) -> u64 {
        let number = self.store.ask(operation);
        self.requests.add(number, client, what, 0);
        number
    }

    fn wait_for(&mut self, client: usize, id: JobId, limit_ms: Option<u64>) {
        self.requests.waiters.entry(id).or_default().push(client);
        if let Some(limit_ms) = limit_ms {
            let until_ms = self.now().mono_ms.saturating_add(limit_ms);
            self.requests.wait_limits.insert(client, (until_ms, id));
        }
        self.look_for(client, For::Wait, id);
        if self.store.is_shared() {
            self.heartbeat.due_before(self.now().mono_ms + FOREIGN_MS);
        }
    }

    /// The time limit of opening the store. `None`: it is open, or known to fail.
    pub(crate) fn opening_limit_ms(&self) -> Option<u64> {
        self.store_state.opening_limit_ms(millis(self.jobs.push_timeout))
    }

    /// Why the store can't be used now, or `None`.
    pub(crate) fn refusal(&self) -> Option<String> {
        if let Some(why) = self.store_state.why_not() {
            return Some(format!("the store: {why}"));
        }
        let now_ms = self.now().mono_ms;
        if self.store.is_full() {
            return Some("the store can't keep up; try again".to_owned());
        }
        let since_ms = self
            .store
            .waits_since_ms()
            .filter(|_| self.store_state.is_loaded())?;
        let waited_ms = now_ms.saturating_sub(since_ms);
        (waited_ms >= millis(self.jobs.push_timeout)).then(|| {
            format!(
                "the store: it has not answered for {} s",
                waited_ms.div_ceil(1_000)
            )
        })
    }

    pub(crate) fn poll_limits(&mut self, now_ms: u64) {
        while let Some((due, number)) = self.requests.push_limits.first().copied() {
            let asked = self.requests.asked.get_mut(&number);
            if asked.is_some() && due > now_ms {
                break;
            }
            self.requests.push_limits.remove(&(due, number));
            let Some(asked) = asked else { continue };
            let client = std::mem::replace(&mut asked.client, NOBODY);
            let answer = match self.store.withdraw(number) {
                true => JobsAnswer::not_now("the store: it did not come to this in time; nothing is stored"),
                false => JobsAnswer::Error {
                    message: "the store: it has not answered in time, so it is not known whether the job is stored; pushed \
                              again with the same ref it is stored once"
                        .to_owned(),
                    is_temporary: true,
                    is_unknown: true,
                },
            };
            self.connections.answer(client, &answer);
        }
        for (client, id) in self.requests.take_overdue(now_ms) {
            self.look_for(client, For::Show, id);
        }
        if self.opening_limit_ms().is_some_and(|due| due <= now_ms) {
            self.store_state.failed("it is not open yet".to_owned());
            self.connections.look_at_clients();
        }
    }

    /// The totals of the queues that a client may see.
    fn stats(&self, client: usize) -> JobsAnswer {
        JobsAnswer::Stats(Box::new(Stats {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store_up: self.store_state.is_open(),
            store_error: self.refusal(),
            queues: self.queues(client),
        }))
    }

    fn queues(&self, client: usize) -> Vec<QueueView> {
        let mut queues = (self.figures).views(&self.jobs, &self.scheduler, self.now().wall_ms);
        let rights = self.connections.rights(client);
        queues.retain(|queue| commands::may_use(rights, &self.jobs, &queue.name));
        queues
    }

    pub(crate) fn hear_store(&mut self) {
        while let Some(event) = self.store.next_event() {
            match event {
                StoreEvent::Reply(number, reply) => self.replied(number, reply),
                StoreEvent::Opened(waiting) => {
                    self.store_state.opened();
                    self.count_waiting(waiting);
                    self.store.ask(Operation::Load);
                }
                StoreEvent::Unopened(why) => {
                    self.store_state.unopened(why);
                    self.connections.look_at_clients();
                }
                StoreEvent::Changes(changes) => self.count_waiting(changes),
                StoreEvent::Due(due) => self.events.push_back(Event::Due(due)),
                StoreEvent::Noticed(Notice::News) => self.heartbeat.due_before(0),
                StoreEvent::Noticed(Notice::Cancel(id)) => self.events.push_back(Event::Cancel(id)),
                StoreEvent::Failed(why) => {
                    log::error!("jobs: the store can't be written to: {why}; no job starts until it can");
                    self.store_state.failed(why);
                    self.events.push_back(Event::StoreFailed);
                    self.connections.look_at_clients();
                }
                StoreEvent::Well => {
                    log::warn!("jobs: the store can be written to again");
                    self.store_state.well();
                    if self.store_state.is_loaded() {
                        self.events.push_back(Event::StoreWell);
                    }
                }
            }
        }
    }

    fn count_waiting(&mut self, changes: Changes) {
        let events = changes
            .into_iter()
            .map(|(group, change)| Event::Waiting(group, change));
        self.events.extend(events);
    }

    fn replied(&mut self, number: u64, reply: Reply) {
        if let Some(id) = self.requests.finishing.remove(&number) {
            self.show_to_waiters(id);
        }
        if let Reply::Paused { queue, is_paused } = &reply {
            let (queue, is_paused) = (queue.clone(), *is_paused);
            self.events.push_back(Event::Paused { queue, is_paused });
        }
        match reply {
            Reply::Claimed(group, job) => {
                let start = job.as_ref().map(|job| job.start.clone());
                if let Some(job) = job {
                    self.figures.started(&job.queue, job.waited_ms);
                    self.running.begin(*job);
                }
                return self.events.push_back(Event::Claimed(group, start));
            }
            Reply::Loaded {
                paused,
                schedules,
                ahead_ms,
            } => {
                self.store_state.ahead_ms = ahead_ms;
                return self.loaded(paused, &schedules);
            }
            Reply::Foreign {
                jobs,
                owners,
                paused,
                cancelled,
                ahead_ms,
            } => {
                self.store_state.ahead_ms = ahead_ms;
                // A second cancel has no effect.
                self.events.extend(cancelled.into_iter().map(Event::Cancel));
                return self.see_foreign(jobs, owners, &paused);
            }
            Reply::Cleaned { is_more } => {
                if is_more {
                    self.store_state.clean_due_ms = 0;
                }
                return;
            }
            _ => {}
        }
        let Some(asked) = self.requests.asked.remove(&number) else {
            if let Reply::Failed(why) = reply {
                log::error!("jobs: an answer is lost: {why}");
                self.heartbeat.lost();
            }
            return;
        };
        if let Some(reply) = self.go_on(number, asked, reply) {
            self.reply_to(asked, reply);
        }
    }

    /// Continues a change that is made in portions; returns the reply when all is done. A process that ends begins no
    /// further portion.
    fn go_on(&mut self, number: u64, asked: PendingReply, reply: Reply) -> Option<Reply> {
        let (before, mut told, before_held) = self.requests.portions.remove(&number).unwrap_or_default();
        let Reply::Changed {
            count,
            running,
            held,
            rest,
        } = reply
        else {
            return Some(reply);
        };
        let count = before + count;
        told.extend(running);
        let held = HeldKeys::sum(before_held, held);
        match rest {
            Some(_) if self.master.is_leaving() => Some(Reply::Failed(format!(
                "{count} were changed, and the daemon ends; try again"
            ))),
            Some(rest) => {
                let number = self.store.ask(*rest);
                self.requests.asked.insert(number, asked);
                self.requests.portions.insert(number, (count, told, held));
                None
            }
            None => Some(Reply::Changed {
                count,
                running: told,
                held,
                rest: None,
            }),
        }
    }

    fn reply_to(&mut self, asked: PendingReply, reply: Reply) {
        if asked.what == For::Wait && !self.requests.ends_wait(asked, &reply) {
            return;
        }
        let is_allowed =
            |queue: &str| commands::may_use(self.connections.rights(asked.client), &self.jobs, queue);
        let none = || commands::answer(Reply::Show(None));
        let answer = match (asked.what, reply) {
            (For::Show | For::Wait | For::Await(_), Reply::Show(Some(job))) if !is_allowed(&job.queue) => {
                none()
            }
            (For::Await(limit_ms), Reply::Show(Some(job))) => {
                let has_ended = State::of_name(&job.state).is_some_and(State::is_end);
                if !has_ended {
                    return self.wait_for(asked.client, job.id, limit_ms);
                }
                commands::answer(Reply::Show(Some(job)))
            }
            (For::Run, Reply::List(found)) => match again(&found) {
                Ok(again) => {
                    self.ask(asked.client, For::Answer, again);
                    return;
                }
                Err(why) => Some(JobsAnswer::error(why)),
            },
            (what, Reply::Counts(counts)) => {
                self.figures.counts = counts;
                Some(match what {
                    For::Queues => JobsAnswer::Queues {
                        queues: self.queues(asked.client),
                    },
                    _ => self.stats(asked.client),
                })
            }
            (_, reply) => {
                if let Reply::Changed { running, .. } | Reply::Sequence(_, running) = &reply {
                    self.events.extend(running.iter().copied().map(Event::Cancel));
                }
                let has_changed = match &reply {
                    Reply::Sequence(sequence, _) => sequence.state == "cancelled",
                    reply => matches!(reply, Reply::Changed { .. }),
                };
                if has_changed {
                    self.show_to_all_waiters();
                }
                commands::answer(reply)
            }
        };
        if let Some(answer) = answer {
            self.connections.answer(asked.client, &answer);
        }
    }

    pub(crate) fn show_to_all_waiters(&mut self) {
        let waited: Vec<JobId> = self.requests.waiters.keys().copied().collect();
        waited.into_iter().for_each(|id| self.show_to_waiters(id));
    }

    pub(crate) fn show_to_waiters(&mut self, id: JobId) {
        let clients = &self.connections.clients;
        if let Some(waiting) = self.requests.waiters.get_mut(&id) {
            waiting.retain(|client| clients.contains_key(client));
        }
        let waiting = self.requests.waiters.get(&id).cloned().unwrap_or_default();
        for client in waiting {
            self.look_for(client, For::Wait, id);
        }
    }

    fn look_for(&mut self, client: usize, what: For, id: JobId) {
        let number = self.store.ask(Operation::Show(id));
        self.requests.add(number, client, what, id);
    }
}

fn again(found: &[JobView]) -> Result<Operation, &'static str> {
    let first = found
        .first()
        .ok_or("there is no job of this kind with such a key")?;
    if found.iter().any(|job| job.queue != first.queue) {
        return Err("there are such jobs in several queues: name one");
    }
    let ids = found.iter().map(|job| job.id).collect();
    Ok(Operation::Again(first.queue.clone(), ids))
}
