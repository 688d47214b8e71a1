//! Performs the core's actions: one match, no decisions. A failure goes back in as an event.

mod adoption;
mod apply_error;
mod births;
mod context;
mod control;
mod deaths;
mod errors;
mod estate;
mod events;
mod failure;
mod generation;
mod handover;
mod helper;
mod helpers;
mod launches;
mod needs;
mod opening;
mod output;
mod pools;
mod preloader;
mod processes;
mod programs;
mod promotion;
mod reload;
mod reloads;
mod renewal;
mod reporter;
mod reports;
mod routers;
mod said;
mod say;
mod shared;
mod slow;
mod sockets;
mod sources;
mod spawner;
mod stand_in;
mod starts;
mod store;
mod tallies;
mod totals;
mod upgrade;
mod warm;
mod worker;

use super::action::{Action, Force};
use super::event::{Event, GenerationId, PoolId, Row, Told, WorkerId};
use crate::config::Config;
use crate::estate::names;
use crate::logs::Log;
use crate::scoreboard::{Stage, census, header};
use crate::sys::{clock, last_word, pidfd, process};
use crate::worker::Runtime;
use context::Context;
use control::Control;
use generation::Generation;
use handover::Handover;
use helpers::Helpers;
use mio::Registry;
use nix::sys::signal::Signal;
use pools::Pools;
use processes::{Processes, Who};
use reload::Reload;
use routers::Applications;
use sources::Sources;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use worker::WorkerProcess;

pub use apply_error::ApplyError;
pub(super) use control::Rights;
pub use failure::RunError;
pub(crate) use needs::programs as needed_programs;
pub(super) use renewal::Extent;
pub(super) use sources::{SIGNALS, Source};
pub(super) use totals::Totals;
pub(super) use upgrade::UpgradeError;
pub(crate) use upgrade::{ANSWER as REHEARSAL_ANSWER, OPTION as REHEARSAL_OPTION};

/// Workers' runtimes that live in this process: by pool name.
pub type Handlers = HashMap<String, Box<dyn Runtime>>;

/// What the master holds of the world, in parts that each own their state.
pub(super) struct Executor {
    pub(super) context: Context,
    pub(super) processes: Processes,
    pub(super) pools: Pools,
    pub(super) helpers: Helpers,
    pub(super) applications: Applications,
    pub(super) reload: Reload,
    pub(super) handover: Handover,
    pub(super) control: Control,
}

impl Executor {
    /// Nothing runs yet.
    ///
    /// # Errors
    /// `dup`.
    pub(in crate::master) fn new(
        registry: Registry,
        log: &'static Log,
        config: Config,
        handlers: Handlers,
        libexec: PathBuf,
        descriptor_limit: Option<(u64, u64)>,
    ) -> io::Result<Executor> {
        let spawner =
            spawner::Spawner::new(registry.try_clone()?, libexec.join("forkyard"), descriptor_limit);
        Ok(Executor {
            context: Context {
                log,
                handlers,
                libexec,
                descriptor_limit,
                speaks_as_fpm: false,
                sources: Sources::new(registry),
                happened: VecDeque::new(),
                outcome: None,
            },
            processes: Processes::default(),
            pools: Pools::default(),
            helpers: Helpers::new(spawner),
            applications: Applications::default(),
            reload: Reload::new(config),
            handover: Handover::default(),
            control: Control::default(),
        })
    }

    /// Performs one action.
    pub(in crate::master) fn perform(&mut self, action: Action) {
        self.handover.note_change(&action);
        match action {
            Action::Watch(pool) => self.pools.watch(&mut self.context, pool),
            Action::Unwatch(pool) => self.pools.unwatch(&mut self.context, pool),
            Action::SetNotify(generation, notify) => {
                if let Some(generation) = self.pools.generations.get_mut(&generation) {
                    generation.set_notify(notify);
                }
            }
            Action::TakeCensus(generation) => self.pools.take_census(&mut self.context, generation),
            Action::StartPreloader(generation) => self.start_preloader(generation),
            Action::StopPreloader(generation, force) => self.stop_preloader(generation, force),
            Action::StandIn(pool, generation, wait) => self.stand_in(pool, generation, wait),
            Action::StandDown(pool) => self.helpers.stand_down(pool),
            Action::Promote(worker, generation) => {
                self.helpers
                    .promote(&mut self.context, &self.pools, worker, generation)
            }
            Action::Succeed(generation) => self.pools.succeed(&mut self.context, generation),
            Action::StopSecond(generation, force) => self.stop_second(generation, force),
            Action::Fork(worker, generation, slot) => self.fork(worker, generation, slot.0),
            Action::Retire(worker) => self.pools.retire(&mut self.handover, worker),
            Action::Fill(order, worker) => self.applications.fill_order(order, worker),
            Action::Fail(order) => self.applications.fail_order(order),
            Action::Nudge(pool) => self.pools.nudge(pool),
            Action::TimeUp(worker) => self.pools.time_up(&mut self.handover, worker),
            Action::Kill(worker, force) => self.pools.kill(&mut self.handover, worker, force),
            Action::Publish(generation, figures) => {
                if let Some(resources) = self
                    .pools
                    .generations
                    .get(&generation)
                    .and_then(|g| g.resources.as_ref())
                {
                    let counter = crate::scoreboard::layout::header::MAX_CHILDREN_REACHED;
                    header::raise(resources.board.header(), counter, figures.max_children_reached);
                    let counter = crate::scoreboard::layout::header::SLOW_REQUESTS;
                    header::raise(resources.board.header(), counter, figures.slow_requests);
                }
            }
            Action::Trace(worker) => self.trace(worker),
            Action::Renew => self.renew(),
            Action::DropGeneration(generation) => self.drop_generation(generation),
            Action::ClosePool(pool) => self.close_pool(pool),
            Action::Note(fact) => {
                self.follow_reload(fact);
                self.pools.note(fact);
            }
            Action::Say(notice) => self.say(&notice),
            Action::Exit(outcome) => self.context.outcome = Some(outcome),
        }
    }

    fn drop_generation(&mut self, id: GenerationId) {
        self.reload.forget_reload_of(id);
        self.pools.take_over_counts(id);
        let Some(generation) = self.pools.generations.remove(&id) else {
            return;
        };
        self.helpers.programs.remove(&id);
        if generation.share.is_some() {
            self.handover.unkeep([names::program_table(id.0)]);
        }
        let is_ordered = generation.is_ordered();
        if let Some(mut resources) = generation.resources {
            if !is_ordered {
                self.handover.unkeep(names::of_generation(id.0));
                if resources.reports.is_some() {
                    self.handover.unkeep(names::reports(id.0));
                }
            }
            if let Some(reports) = &mut resources.reports {
                self.pools.hear_last_reports(&generation.settings, reports);
                self.context.sources.forget(reports.ends().0);
            }
            self.context.sources.forget(&resources.child_accept.0);
            self.context
                .drain_messages(&generation.settings.pool.name, &mut resources.messages);
            self.context.sources.forget(resources.messages.pipe());
        }
    }
}

impl Pools {
    fn take_census(&self, context: &mut Context, id: GenerationId) {
        let Some(generation) = self.generations.get(&id) else {
            return;
        };
        let mut rows = Vec::new();
        if let Some(resources) = &generation.resources {
            for (&slot, &worker) in &generation.seats {
                let Some(page) = resources.board.slot(slot as usize) else {
                    continue;
                };
                rows.push(row(
                    worker,
                    page,
                    generation.settings.pool.request_terminate_timeout_track_finished,
                ));
            }
        }
        let queued = self.by_id.get(&generation.pool).map(pools::RunningPool::queued);
        context
            .happened
            .push_back(Event::Census(id, rows, queued.flatten()));
    }

    fn retire(&mut self, handover: &mut Handover, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.told.get_or_insert((Told::Retire, clock::now()));
        let (generation, slot) = (worker.generation, worker.slot);
        self.close_retire(handover, id);
        if let Some(resources) = self
            .generations
            .get(&generation)
            .and_then(|g| g.resources.as_ref())
        {
            header::set_retire(resources.board.header(), slot as usize, true);
        }
    }

    fn kill(&mut self, handover: &mut Handover, id: WorkerId, force: Force) {
        self.close_retire(handover, id);
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let (signal, told) = match force {
            Force::Ask => return,
            Force::Terminate => (Signal::SIGTERM, Told::Terminate),
            Force::Kill => (Signal::SIGKILL, Told::Kill),
        };
        worker.told = Some((told, clock::now()));
        let sent = match (&worker.foreign, worker.pid) {
            (Some(process), _) => pidfd::send_signal(process.as_fd(), signal),
            (None, Some(pid)) => process::send_signal(pid, signal),
            (None, None) => Ok(()),
        };
        if let Err(error) = sent {
            log::error!("{error}");
        }
    }

    /// The worker answers for its request, and ends.
    fn time_up(&mut self, handover: &mut Handover, id: WorkerId) {
        self.count_terminated(id);
        self.close_retire(handover, id);
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        worker.told = Some((Told::Terminate, clock::now()));
        let sent = match (&worker.foreign, worker.pid) {
            // The word goes with the signal to a child only.
            (Some(process), _) => Some(pidfd::send_signal(process.as_fd(), Signal::SIGTERM)),
            (None, pid) => pid.map(last_word::send_time_up),
        };
        if let Some(Err(error)) = sent {
            log::error!("{error}");
        }
    }

    fn pool_name(&self, pool: PoolId) -> &str {
        self.by_id.get(&pool).map_or("?", |pool| pool.name.as_str())
    }

    fn generation_name(&self, generation: GenerationId) -> &str {
        self.generations
            .get(&generation)
            .map_or("?", |g| g.settings.pool.name.as_str())
    }
}

/// A slot, as far as the core looks at it. `track_finished`: a request that is answered may still be ended.
fn row(worker: WorkerId, page: &[std::sync::atomic::AtomicU64], track_finished: bool) -> Row {
    use crate::scoreboard::layout::slot;
    let stage = census::stage(page);
    let (since, running) = match stage {
        Stage::Creating | Stage::Accepting | Stage::Accepted | Stage::Finished => (slot::SINCE, false),
        Stage::ReadingHeaders | Stage::Info | Stage::Executing | Stage::Working => (slot::TAKEN, true),
        Stage::End => (slot::TAKEN, track_finished),
    };
    Row {
        worker,
        idle: stage == Stage::Accepting,
        since: crate::tick::Tick::from_nanos(census::word(page, since)),
        running,
        executing: stage == Stage::Executing,
        kept: u32::try_from(census::word(page, slot::KEPT)).unwrap_or(u32::MAX),
    }
}
