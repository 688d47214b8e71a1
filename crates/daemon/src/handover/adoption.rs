//! Takes over the previous master's state.

use crate::autopilot::Autopilots;
use crate::context::apply_error::ApplyError;
use crate::context::generation::{Generation, Pipes, Resources, open_access_log};
use crate::context::lines::Lines;
use crate::context::pools::{Pools, RunningPool, policy};
use crate::context::processes::{Processes, Who};
use crate::context::queues::Queues;
use crate::context::reports::Reports;
use crate::context::services::Services;
use crate::context::sources::Source;
use crate::context::worker::WorkerProcess;
use crate::context::{Context, InForce};
use crate::handover::InheritedState;
use crate::programs::Programs;
use crate::releases::release::Releases;
use crate::status::archive::PastHours;
use forkyard_base::tick::Tick;
use forkyard_config::{Application, Config, Pool};
use forkyard_core::master::action::WakeOnAccept;
use forkyard_core::master::event::{
    Adopted, AdoptedGeneration, AdoptedWorker, GenerationId, Policy, PoolId, SlotIndex, WorkerId,
};
use forkyard_host::confine;
use forkyard_host::listen::{Inherited, ListenError, Listener};
use forkyard_host::logs::Handout;
use forkyard_protocol::handover::names::QueueKind;
use forkyard_protocol::handover::{document, names};
use forkyard_scoreboard::layout::slot as field;
use forkyard_scoreboard::{Board, header, slot_reader};
use forkyard_sys::guarded::{Guarded, close_apart};
use forkyard_sys::session::Leader;
use forkyard_sys::{Error, pidfd, process};
use nix::errno::Errno;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Why a part of the previous master's state can't be adopted.
#[derive(Debug, thiserror::Error)]
enum AdoptError {
    #[error("no configuration names the pool")]
    Unknown,
    #[error("{0} is missing")]
    Missing(String),
    #[error(transparent)]
    Settings(#[from] ApplyError),
    #[error(transparent)]
    Listener(#[from] ListenError),
    #[error(transparent)]
    System(#[from] Error),
}

/// The parts that take over state.
pub(crate) struct AdoptingParts<'p> {
    pub(crate) programs: &'p mut Programs,
    pub(crate) autopilots: &'p mut Autopilots,
    pub(crate) releases: &'p mut Releases,
    pub(crate) archive: &'p mut PastHours,
}

impl Context {
    /// Adopts the running generations, and returns the event for the core, or `None` if there are none. `config` is
    /// used if the previous configuration is unknown.
    pub(crate) fn adopt(
        &mut self,
        parts: &mut AdoptingParts<'_>,
        inherited: InheritedState,
        config: &Config,
    ) -> Option<Adopted> {
        let InheritedState {
            document,
            plan,
            config: before,
            mut descriptors,
            listeners,
            own_listeners,
            highest,
            problem,
            ..
        } = inherited;
        self.handover.inherited = Inherited::new(listeners, own_listeners);
        if let Some(problem) = problem {
            log::error!(
                "the previous master's hand-over state is unusable except for its sockets; its workers finish \
                 by themselves: {problem}"
            );
        }
        let document = document?;
        log::info!(
            "taking over from process {} (version {})",
            document.master,
            document.program
        );
        for complaint in &plan.complaints {
            log::warn!("{complaint}");
        }
        (self.pools.last_pool, self.pools.last_generation) = (highest.0, highest.1);
        self.services.descriptor_limit = document.descriptor_limit.or(self.services.descriptor_limit);
        if let Some(before) = before {
            // Groups whose pool is gone are removed.
            let groups = before.pools.iter();
            let groups = groups.map(|pool| confine::check(&self.services.in_force(pool)));
            self.pools.groups = groups.filter_map(|group| group.ok().flatten()).collect();
            self.in_force.take(before);
        }
        let mut adopted = Adopted {
            process_max: self.in_force.config.global.process_max,
            control_timeout: self.in_force.config.global.process_control_timeout,
            next_worker: highest.2 + 1,
            ..Adopted::default()
        };
        for pool in &plan.pools {
            if let Some(release) = &pool.release {
                parts.releases.left.insert(pool.name.clone(), release.clone());
            }
            for (link, release) in &pool.sites {
                self.pools.sites.with_link(PoolId(pool.id), link, release);
            }
            match self.pools.adopt_pool(&self.in_force, pool, &mut descriptors) {
                Ok(id) => adopted.pools.push(id),
                Err(error) => log::error!("[pool {}] {error}", pool.name),
            }
        }
        parts.archive.adopt(descriptors.remove(names::ARCHIVE));
        let mut dead: BTreeMap<u32, Vec<document::SavedWorker>> = BTreeMap::new();
        for (generation, worker) in plan.dead {
            dead.entry(generation).or_default().push(worker);
        }
        for generation in plan.generations {
            let gone = dead.remove(&generation.id).unwrap_or_default();
            let name = generation.name.clone();
            match self.adopt_generation(parts, generation, &gone, config, &mut descriptors) {
                Ok(generation) => adopted.generations.push(generation),
                Err(error) => log::error!("[pool {name}] the old workers finish by themselves: {error}"),
            }
        }
        // Unclaimed descriptors may have received anything.
        close_apart(descriptors.into_values().collect());
        self.remove_sockets_of_others(&document);
        let serving = plan.pools.iter();
        let serving = serving.map(|pool| (PoolId(pool.id), pool.serving.map(GenerationId)));
        adopted.choose_serving(serving);
        for generation in adopted.generations.iter().filter(|generation| generation.serves) {
            self.pools.serves(generation.pool, generation.generation);
        }
        let workers = adopted.generations.iter().map(|it| it.workers.len());
        log::info!(
            "{} pools and {} workers go on",
            adopted.pools.len(),
            workers.sum::<usize>()
        );
        Some(adopted)
    }

    fn adopt_generation(
        &mut self,
        parts: &mut AdoptingParts<'_>,
        left: document::SavedGeneration,
        gone: &[document::SavedWorker],
        config: &Config,
        descriptors: &mut HashMap<String, OwnedFd>,
    ) -> Result<AdoptedGeneration, AdoptError> {
        let id = GenerationId(left.id);
        let written = || config.pools.iter().find(|pool| pool.name == left.name);
        let pool: Arc<Pool> =
            (self.in_force.pool(&left.name).or_else(written).cloned()).ok_or(AdoptError::Unknown)?;
        let global = &self.in_force.config.global;
        let settings = self.services.settings(&pool, global, &mut HashMap::new());
        let mut settings = settings.map_err(|fault| ApplyError::Pool(left.name.clone(), fault))?;
        settings = parts.releases.adopted(self, settings, left.release.as_deref());
        settings.turn = left.turn;
        (settings.slots, settings.started) = (left.slots, left.started);
        let access = open_access_log(&pool).ok().flatten();
        let resources = resources(&left, &pool.application, access.as_ref(), descriptors)?;
        for (fd, source) in resources.pipes.iter().flat_map(|pipes| pipes.sources(id)) {
            self.services.sources.watch(fd, source)?;
        }
        let mut generation = Generation::new(PoolId(left.pool), settings, access);
        generation.resources = Some(Box::new(resources));
        generation.began = None;
        generation.set_wake_on_accept(WakeOnAccept::default());
        let choice = parts.autopilots.first_choice(&pool);
        generation.choice = choice;
        generation.set_tell_crowded(true);
        generation.set_quiet_wish();
        // A deployment begins again by the command.
        generation.set_turn(None);
        generation.try_open_app_log();
        self.pools.generations.insert(id, generation);
        let has_preloader = parts
            .programs
            .adopt(self, &left, descriptors)
            .unwrap_or_else(|error| {
                log::error!("[pool {}] the program ends: {error}", left.name);
                false
            });
        let mut workers = Vec::new();
        for worker in &left.workers {
            let (services, processes) = (&mut self.services, &mut self.processes);
            let adopted = self
                .pools
                .adopt_worker(services, processes, id, worker, descriptors);
            match adopted {
                Ok(()) => workers.push(AdoptedWorker {
                    worker: WorkerId(worker.id),
                    slot: SlotIndex(worker.slot),
                    forked: Tick::from_nanos(worker.begun),
                    up: worker.up,
                    told: worker.told.map(|(told, when)| (told, Tick::from_nanos(when))),
                }),
                Err(error) => {
                    log::debug!("[pool {}] {error}", left.name);
                    self.pools.free_lost_slot(id, worker);
                }
            }
        }
        for worker in gone {
            log::info!(
                "[pool {}] child {} ended while there was no master",
                left.name,
                worker.pid
            );
            self.pools.free_lost_slot(id, worker);
        }
        Ok(AdoptedGeneration {
            generation: id,
            pool: PoolId(left.pool),
            policy: Policy {
                choice,
                ..policy(&pool)
            },
            slots: left.slots,
            serves: false,
            workers,
            lost: self.pools.lost_slots(id),
            has_preloader,
        })
    }
}

impl Pools {
    fn adopt_pool(
        &mut self,
        in_force: &InForce,
        pool: &document::SavedPool,
        descriptors: &mut HashMap<String, OwnedFd>,
    ) -> Result<PoolId, AdoptError> {
        let mut take = |name: &str| {
            descriptors
                .remove(name)
                .ok_or_else(|| AdoptError::Missing(name.to_owned()))
        };
        let socket = take(&names::listener(pool.id))?;
        let http = pool.http.as_ref().and_then(|http| {
            let socket = take(&names::http(pool.id)).ok()?;
            Some((socket, http.address.clone(), http.file))
        });
        let mut queues = Queues::default();
        for kind in QueueKind::ALL.into_iter().filter(|kind| pool.has(*kind)) {
            let ends: Result<Vec<OwnedFd>, AdoptError> =
                kind.names(pool.id).map(|name| take(&name)).collect();
            queues.insert(kind, ends?.into_iter().map(Guarded::with_descriptors).collect());
        }
        let known = in_force.pool(&pool.name);
        let backlog = known.map_or(-1, |known| known.listen.backlog);
        let listener = Listener::adopt(socket, pool.address.clone(), pool.file, backlog);
        let http = http.map(|(socket, address, file)| Listener::adopt(socket, address, file, backlog));
        let running = RunningPool {
            name: pool.name.clone(),
            http: http.transpose()?,
            listener: Some(listener?),
            queues,
            left_at: pool.had.map(|had| Tick::from_nanos(had.left_at)),
            had: pool.had,
            last_deployment: pool.last_deployment.clone(),
            ..RunningPool::default()
        };
        self.errors.begin(&pool.name);
        self.counters.begin(&pool.name, pool.counters.clone());
        self.by_id.insert(PoolId(pool.id), running);
        Ok(PoolId(pool.id))
    }

    fn adopt_worker(
        &mut self,
        services: &mut Services,
        processes: &mut Processes,
        generation: GenerationId,
        left: &document::SavedWorker,
        descriptors: &mut HashMap<String, OwnedFd>,
    ) -> Result<(), Error> {
        let id = WorkerId(left.id);
        let foreign = if process::is_child(left.pid) {
            processes.by_pid.insert(left.pid, Who::Worker(id));
            None
        } else {
            let process = pidfd::open(left.pid)?;
            // From here on the number can't belong to another process.
            if process::start_time(left.pid) != Some(left.start_time) {
                return Err(Error::new("pidfd_open", left.pid.to_string(), Errno::ESRCH));
            }
            services.sources.watch(&process, Source::Foreign(id))?;
            Some(process)
        };
        let mut output = Vec::new();
        let in_entries = self.logs_entries(generation);
        let streams = names::output(left.id).into_iter().zip(["stdout", "stderr"]);
        for (index, (name, stream)) in streams.enumerate() {
            if let Some(pipe) = descriptors.remove(&name).filter(|_| left.output) {
                let pipe = Guarded::with_descriptors(pipe);
                services.sources.watch(&pipe, Source::Output(id, index))?;
                let lines = Lines::new(pipe).knowing_mark(services.speaks_as_fpm);
                output.push((lines.in_entries(in_entries), stream));
            }
        }
        let adopted = WorkerProcess {
            generation,
            slot: left.slot,
            pid: Some(left.pid),
            stop_pipe: descriptors
                .remove(&names::stop_pipe(left.id))
                .filter(|_| left.told.is_none())
                .map(Guarded::with_descriptors),
            output,
            begun: Tick::from_nanos(left.begun),
            up: left.up,
            told: left.told.map(|(told, when)| (told, Tick::from_nanos(when))),
            leader: foreign.as_ref().and_then(|_| Leader::of(left.pid)),
            foreign,
            start_time: std::cell::Cell::new(Some(left.start_time)),
            // Calls can't be read until another worker replaces it.
            ..WorkerProcess::default()
        };
        self.workers.insert(id, adopted);
        if let Some(generation) = self.generations.get_mut(&generation) {
            generation.slots.insert(left.slot, id);
        }
        Ok(())
    }

    /// Frees the slot of a dead worker, unless another process has written there since.
    fn free_lost_slot(&mut self, id: GenerationId, gone: &document::SavedWorker) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let page = generation.page(gone.slot);
        let last = page.map_or(0, |page| slot_reader::word(page, field::PID));
        if last == 0 || last == gone.pid as u64 {
            generation.free_slot(gone.slot);
        }
    }

    /// Slots of unknown workers, which were being forked when the master ended. Their stop pipe is closed, so they
    /// exit. No other worker may use the slot until the generation ends.
    fn lost_slots(&self, id: GenerationId) -> Vec<SlotIndex> {
        let Some(generation) = self.generations.get(&id) else {
            return Vec::new();
        };
        let Some(resources) = &generation.resources else {
            return Vec::new();
        };
        let words = resources.board.header();
        let lost: Vec<SlotIndex> = (0..generation.settings.slots)
            .filter(|slot| header::used(words, *slot as usize) && !generation.slots.contains_key(slot))
            .map(SlotIndex)
            .collect();
        for slot in &lost {
            header::set_retire(words, slot.0 as usize, true);
        }
        lost
    }
}

fn resources(
    left: &document::SavedGeneration,
    application: &Application,
    access: Option<&OwnedFd>,
    descriptors: &mut HashMap<String, OwnedFd>,
) -> Result<Resources, Error> {
    let take = |descriptors: &mut HashMap<String, OwnedFd>, name: String| {
        let fd = descriptors.remove(&name);
        fd.ok_or_else(|| Error::new("adopt", name, Errno::EBADF))
    };
    let board = take(descriptors, names::board(left.id))?;
    let board = Board::adopt(board, left.slots as usize)?;
    if left.rests {
        return Ok(Resources::new(board, None));
    }
    let access = match names::access_log(left.id).map(|end| descriptors.remove(&end)) {
        [Some(post), Some(shelf)] => Some(Handout::adopt(post, shelf)),
        // The old workers write to the file that they have.
        _ => access.map(Handout::new).transpose()?,
    };
    let reports = match names::reports(left.id).map(|end| descriptors.remove(&end)) {
        [Some(out), Some(into)] => Some(Reports::adopt(Guarded::with_descriptors(out), into)),
        _ => Reports::new(application)?,
    };
    let [accept_out, accept_in] = names::accept_notify(left.id);
    let [messages_out, messages_in] = names::messages(left.id);
    let pipes = Pipes {
        accept_notify: (
            Guarded::with_descriptors(take(descriptors, accept_out)?),
            take(descriptors, accept_in)?,
        ),
        messages: Lines::new(Guarded::with_descriptors(take(descriptors, messages_out)?)),
        messages_in: take(descriptors, messages_in)?,
        reports,
        access,
    };
    Ok(Resources::new(board, Some(pipes)))
}
