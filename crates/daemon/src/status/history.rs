//! Which notices of the core are kept as events, and who may read them.

use crate::context::Context;
use crate::context::pools::Pools;
use crate::context::processes::how;
use crate::context::rights::Rights;
use forkyard_core::master::action::Notice;
use forkyard_core::master::event::{Ended, GenerationId, PoolId, WorkerId};
use forkyard_protocol::control::Answer;
use forkyard_protocol::past_event::{EventKind, Happening};
use nix::sys::signal::Signal;
use std::time::Duration;

impl Context {
    /// Answers with the events that a client with these rights may read.
    pub(crate) fn events(&self, rights: Rights) -> Answer {
        let all = self.handover.history.events();
        let readable = all.filter(|event| match rights {
            Rights::All => true,
            Rights::Own(uid) => event.what.user == Some(uid),
        });
        Answer::Events {
            events: readable.cloned().collect(),
        }
    }

    /// Keeps a notice as an event, if operators look for such later. Must run before the notice is logged, which
    /// forgets a worker's death.
    pub(crate) fn record_notice(&mut self, notice: &Notice) {
        if let Some(happening) = self.happening(notice) {
            self.services.record(happening);
        }
    }

    fn happening(&self, notice: &Notice) -> Option<Happening> {
        let pools = &self.pools;
        let of_pool = |pool: PoolId, kind, text: String| {
            Happening::of_pool(kind, pools.pool_name(pool), pools.user_of_pool(pool), text)
        };
        let of_generation = |id: GenerationId, kind, text: String| {
            Happening::of_pool(kind, pools.generation_name(id), pools.user_of(id), text)
        };
        let of_worker = |worker: WorkerId, kind, text: String| {
            let generation = pools.workers.get(&worker).map(|it| it.generation)?;
            let (_, pid) = pools.name_worker(worker);
            let detail = format!("child {pid}{}", pools.redacted_request_of(worker));
            Some(of_generation(generation, kind, text).with_detail(detail))
        };
        Some(match notice {
            Notice::MaxChildrenReached(pool, max) => {
                let text = format!("all {max} of max_children are needed");
                of_pool(*pool, EventKind::MaxChildren, text)
            }
            Notice::MaxChildrenOver(pool) => {
                let text = "fewer than max_children are needed again";
                of_pool(*pool, EventKind::MaxChildrenOver, text.to_owned())
            }
            Notice::ProcessMaxReached(max) => {
                let text = format!("all {max} processes of process.max are there, and more are needed");
                Happening::of_daemon(EventKind::ProcessMax, text)
            }
            Notice::NoWorkerPossible(pool, wait) => {
                let text = "no worker is left and none can be made".to_owned();
                let why = match wait {
                    Some(wait) => format!("the next try is in {}", seconds(*wait)),
                    None => "process.max allows none".to_owned(),
                };
                of_pool(*pool, EventKind::NoWorker, text).with_detail(why)
            }
            Notice::BackingOff(pool, wait) => {
                let text = "workers can't be made or end right after they were made".to_owned();
                let detail = format!("the next try is in {}", seconds(*wait));
                of_pool(*pool, EventKind::BackOff, text).with_detail(detail)
            }
            Notice::CrashingFast(pool, most, wait) => {
                let text = format!("more than {most} workers a second crash while they serve requests");
                let detail = format!("the next is made in {}", seconds(*wait));
                of_pool(*pool, EventKind::CrashingFast, text).with_detail(detail)
            }
            Notice::SeemsBusy(pool, made, idle, running) => {
                let text = "many workers had to be made at once".to_owned();
                let detail = format!("{made} made, {idle} idle, {running} in all");
                of_pool(*pool, EventKind::SeemsBusy, text).with_detail(detail)
            }
            Notice::EmergencyRestart(rule) => {
                let (count, time) = (rule.threshold, seconds(rule.interval));
                let text = format!("{count} workers crashed within {time}: every pool gets new processes");
                Happening::of_daemon(EventKind::EmergencyRestart, text)
            }
            Notice::RequestTimedOut(worker, age, force) => {
                let text = format!("request_terminate_timeout is over, {force}");
                let event = of_worker(*worker, EventKind::TimedOut, text)?;
                event.lasting(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
            }
            Notice::RetireTimedOut(worker, force) => {
                let text = format!("a worker did not exit in time, {force}");
                of_worker(*worker, EventKind::Overdue, text)?
            }
            Notice::WorkerGone(worker, exit, false) => self.death(*worker, *exit)?,
            // The failed start is an event already.
            Notice::PreloaderLost(id, ..) if self.processes.reported.contains(id) => return None,
            Notice::PreloaderLost(id, exit, wait) => {
                let text = format!("the preloader exited {}", how(*exit));
                let detail = format!("the next try is in {}", seconds(*wait));
                of_generation(*id, EventKind::PreloaderDied, text).with_detail(detail)
            }
            Notice::PromotionFailed(id, exit, _) => {
                let text = format!("no preloader could be made from a worker ({})", how(*exit));
                of_generation(*id, EventKind::PreloaderDied, text)
            }
            Notice::WorkerGone(_, _, true)
            | Notice::RequestSlow(..)
            | Notice::RequestEnded(..)
            | Notice::WorkerStays(_)
            | Notice::PreloaderStays(_)
            | Notice::PreloaderTimedOut(..)
            | Notice::Promoting(_)
            | Notice::MoldSwitched(_)
            | Notice::GenerationServes(_) => return None,
        })
    }

    /// The event of a worker that ended by itself, but not with exit code 0. A worker that the master has ended by a signal
    /// has another event, or none.
    pub(crate) fn death(&self, worker: WorkerId, exit: Ended) -> Option<Happening> {
        let death = self.processes.deaths.get(&worker)?;
        let sender = death.sender.as_ref();
        let text = match (exit, sender) {
            (Ended::Code(0) | Ended::Unknown, _) => return None,
            (Ended::Signal { number, .. }, _) if death.is_ordered && is_an_order(number) => return None,
            (Ended::Signal { number, .. }, Some((sent, _))) if number == *sent => {
                format!("a worker exited {}, which was sent to it", how(exit))
            }
            _ => format!("a worker exited {}", how(exit)),
        };
        let after = seconds(death.uptime);
        let mut detail = format!("child {} after {after} from start", death.pid);
        let parts = [&death.doing, &sender.map(|(_, by)| format!("sent by {by}"))];
        for part in parts.into_iter().flatten() {
            detail = format!("{detail}, {part}");
        }
        let user = self.pools.user_of(death.generation);
        Some(Happening::of_pool(EventKind::WorkerDied, &death.pool, user, text).with_detail(detail))
    }
}

impl Pools {
    pub(crate) fn user_of(&self, id: GenerationId) -> Option<u32> {
        let settings = &self.generations.get(&id)?.settings;
        settings.identity.as_ref().map(|identity| identity.uid)
    }

    /// Whether the processes of a pool with this name run as a user.
    pub(crate) fn is_run_by(&self, name: &str, uid: u32) -> bool {
        let name = name.to_owned();
        let mut named = self.by_id.of(&name);
        named.any(|(id, _)| self.user_of_pool(id) == Some(uid))
    }

    pub(crate) fn user_of_pool(&self, id: PoolId) -> Option<u32> {
        let pool = self.by_id.get(&id)?;
        self.user_of(pool.serving.or(pool.latest)?)
    }
}

/// Whether the master ends workers by this signal.
fn is_an_order(signal: i32) -> bool {
    let orders = [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGQUIT];
    orders.map(|order| order as i32).contains(&signal)
}

fn seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}
