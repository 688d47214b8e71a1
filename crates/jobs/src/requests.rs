//! What clients want: asked of the store, and answered.

use crate::client::Rights;
use crate::commands::{self, For, Wanted};
use crate::core::{Event, JobId};
use crate::lease::Lease;
use crate::master::FOREIGN_MS;
use crate::run::{Asked, Peer, Process};
use crate::store::sql::Notice;
use crate::store::{Operation, Reply, State, StoreEvent};
use forkyard_protocol::jobs::{JobsAnswer, NewJob, ScheduleView, Stats};

impl Process {
    pub(crate) fn answer(&mut self, token: usize, answer: &JobsAnswer) {
        if let Some(Peer::Client(client)) = self.peers.get_mut(&token) {
            client.answer(answer);
            self.again.push(token);
        }
    }

    fn rights(&self, token: usize) -> Rights {
        match self.peers.get(&token) {
            Some(Peer::Client(client)) => client.rights,
            _ => Rights::Own(u32::MAX),
        }
    }

    pub(crate) fn want(&mut self, client: usize, wanted: Wanted) {
        match wanted {
            Wanted::Store(..) | Wanted::Wait(_) if self.store.is_full() => {
                let refusal = JobsAnswer::Error {
                    message: "the store can't keep up; try again".to_owned(),
                    is_temporary: true,
                };
                self.answer(client, &refusal);
            }
            Wanted::Store(operation, what) => {
                let paused = match &operation {
                    Operation::Pause { queue, is_paused, .. } => Some((queue.clone(), *is_paused)),
                    _ => None,
                };
                let number = self.store.ask(operation);
                self.asked.insert(number, Asked { client, what, id: 0 });
                if let Some(paused) = paused {
                    self.pausing.insert(number, paused);
                }
            }
            Wanted::Wait(id) => {
                self.waiters.entry(id).or_default().push(client);
                self.look_for(client, id);
                if self.store.is_shared() {
                    let soon = self.now().mono_ms + FOREIGN_MS;
                    self.foreign_due_ms = Some(self.foreign_due_ms.map_or(soon, |due| due.min(soon)));
                }
            }
            Wanted::Schedules => {
                let view = |planned: &crate::core::schedule::Planned| ScheduleView {
                    name: planned.schedule.name.clone(),
                    queue: planned.schedule.queue.clone(),
                    kind: planned.schedule.kind.clone(),
                    cron: planned.schedule.cron.clone(),
                    timezone: planned.schedule.timezone.clone(),
                    next_ms: planned.next_ms,
                };
                let schedules = self.schedules.all().iter().map(view).collect();
                self.answer(client, &JobsAnswer::Schedules { schedules });
            }
            Wanted::Kinds => {
                let kinds = self.figures.kinds(&self.jobs);
                self.answer(client, &JobsAnswer::Kinds { kinds });
            }
            Wanted::Connections => {
                let now_ms = self.now().mono_ms;
                let mut connections: Vec<_> = (self.peers.iter())
                    .filter_map(|(token, peer)| match peer {
                        Peer::Client(other) => Some(other.view(*token, now_ms)),
                        Peer::Call(_) => None,
                    })
                    .collect();
                connections.sort_by_key(|connection| connection.id);
                self.answer(client, &JobsAnswer::Connections { connections });
            }
            Wanted::RunNow(name) => match self.schedules.find(&name) {
                Some(planned) => {
                    let schedule = &planned.schedule;
                    let job = NewJob {
                        queue: schedule.queue.clone(),
                        kind: schedule.kind.clone(),
                        payload: schedule.payload.clone().into_bytes(),
                        ..NewJob::default()
                    };
                    let number = self.store.ask(Operation::Push(vec![job]));
                    let what = For::Push;
                    self.asked.insert(number, Asked { client, what, id: 0 });
                }
                None => self.answer(
                    client,
                    &JobsAnswer::error(format!("there is no schedule \"{name}\"")),
                ),
            },
        }
    }

    pub(crate) fn hear_store(&mut self) {
        while let Some(event) = self.store.next_event() {
            match event {
                StoreEvent::Reply(number, reply) => self.replied(number, reply),
                StoreEvent::Changes(changes) => {
                    for ((queue, tenant), change) in changes {
                        self.events.push_back(Event::Waiting {
                            queue,
                            tenant,
                            change,
                        });
                    }
                }
                StoreEvent::Due(due) => self.events.push_back(Event::Due(due)),
                StoreEvent::Noticed(Notice::News) => self.foreign_due_ms = Some(0),
                StoreEvent::Noticed(Notice::Cancel(id)) => self.events.push_back(Event::Cancel(id)),
                StoreEvent::Failed(why) => {
                    log::error!("jobs: the store can't be written to: {why}; no job starts until it can");
                    self.store_up = false;
                    self.events.push_back(Event::StoreFailed);
                }
                StoreEvent::Well => {
                    log::warn!("jobs: the store can be written to again");
                    self.store_up = true;
                    self.events.push_back(Event::StoreWell);
                }
            }
        }
    }

    fn replied(&mut self, number: u64, reply: Reply) {
        if let Some(id) = self.finishing.remove(&number) {
            self.show_to_waiters(id);
        }
        if let Some((queue, is_paused)) = self.pausing.remove(&number) {
            if reply == Reply::Done {
                self.events.push_back(Event::Paused { queue, is_paused });
            }
        }
        match reply {
            Reply::Claimed { queue, tenant, job } => {
                let lease = job.map(|job| Lease::new(*job));
                let start = lease.as_ref().map(Lease::start);
                if let Some(lease) = lease {
                    self.figures.started(&lease.job.queue, lease.job.waited_ms);
                    self.leases.insert(lease.job.id, lease);
                }
                self.events.push_back(Event::Claimed {
                    queue,
                    tenant,
                    job: start,
                });
                return;
            }
            Reply::Loaded {
                paused,
                schedules,
                ahead_ms,
            } => {
                self.ahead_ms = ahead_ms;
                return self.loaded(paused, &schedules);
            }
            Reply::Foreign {
                jobs,
                owners,
                paused,
                cancelled,
                ahead_ms,
            } => {
                self.ahead_ms = ahead_ms;
                // One that is told twice goes on giving up.
                self.events.extend(cancelled.into_iter().map(Event::Cancel));
                return self.see_foreign(jobs, owners, &paused);
            }
            Reply::Cleaned { is_more } => {
                if is_more {
                    self.clean_due_ms = 0;
                }
                return;
            }
            _ => {}
        }
        let Some(asked) = self.asked.remove(&number) else {
            if let Reply::Failed(why) = reply {
                log::error!("jobs: what was to be written is lost: {why}");
                self.is_foreign_asked = false;
            }
            return;
        };
        self.reply_to(asked, reply);
    }

    fn reply_to(&mut self, asked: Asked, reply: Reply) {
        if asked.what == For::Wait && !self.ends_wait(asked, &reply) {
            return;
        }
        let is_allowed = |queue: &str| commands::may_use(self.rights(asked.client), &self.jobs, queue);
        let none = || commands::answer(Reply::Show(None));
        let answer = match (asked.what, reply) {
            (For::Show | For::Wait, Reply::Show(Some(job))) if !is_allowed(&job.queue) => none(),
            (For::Queues | For::Stats, Reply::Counts(counts)) => {
                let mut queues = self
                    .figures
                    .views(&self.jobs, &self.scheduler, counts, self.now().wall_ms);
                queues.retain(|queue| is_allowed(&queue.name));
                Some(match asked.what {
                    For::Queues => JobsAnswer::Queues { queues },
                    _ => JobsAnswer::Stats(Box::new(Stats {
                        pid: std::process::id(),
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                        store_up: self.store_up,
                        queues,
                    })),
                })
            }
            (For::Change, Reply::Changed { count, running }) => {
                for id in &running {
                    self.events.push_back(Event::Cancel(*id));
                }
                let waited: Vec<JobId> = self.waiters.keys().copied().collect();
                waited.into_iter().for_each(|id| self.show_to_waiters(id));
                commands::answer(Reply::Changed { count, running })
            }
            (For::Sequence, Reply::Sequence(sequence, running)) => {
                for id in &running {
                    self.events.push_back(Event::Cancel(*id));
                }
                if sequence.state == "cancelled" {
                    let waited: Vec<JobId> = self.waiters.keys().copied().collect();
                    waited.into_iter().for_each(|id| self.show_to_waiters(id));
                }
                commands::answer(Reply::Sequence(sequence, running))
            }
            (_, reply) => commands::answer(reply),
        };
        if let Some(answer) = answer {
            self.answer(asked.client, &answer);
        }
    }

    /// Whether a client that waits for a job is answered with this, and waits no more. A job that ends may be looked for several
    /// times at once: the first of these answers.
    fn ends_wait(&mut self, asked: Asked, reply: &Reply) -> bool {
        let has_ended = match reply {
            Reply::Show(Some(job)) => State::of_name(&job.state).is_some_and(State::is_end),
            _ => true,
        };
        let waiting = self.waiters.get_mut(&asked.id).filter(|_| has_ended);
        let Some(waiting) = waiting else { return false };
        let count = waiting.len();
        waiting.retain(|client| *client != asked.client);
        let has_waited = waiting.len() < count;
        if waiting.is_empty() {
            self.waiters.remove(&asked.id);
        }
        has_waited
    }

    /// Looks whether a job has ended that clients wait for.
    pub(crate) fn show_to_waiters(&mut self, id: JobId) {
        let peers = &self.peers;
        if let Some(waiting) = self.waiters.get_mut(&id) {
            waiting.retain(|client| peers.contains_key(client));
        }
        let waiting = self.waiters.get(&id).cloned().unwrap_or_default();
        for client in waiting {
            self.look_for(client, id);
        }
    }

    /// Looks whether the job that a client waits for has ended.
    fn look_for(&mut self, client: usize, id: JobId) {
        let number = self.store.ask(Operation::Show(id));
        let what = For::Wait;
        self.asked.insert(number, Asked { client, what, id });
    }
}
