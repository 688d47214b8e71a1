//! Maps generations to the processes that fork their workers. The core gives each generation a preloader; here
//! generations are attached to a zygote.

use super::app_log::whose;
use super::generation::Generation;
use super::preloader::{Command, Preloader};
use super::programs::RunningProgram;
use super::{Executor, Pools, Preloaders, Programs, Services};
use crate::config::sharing;
use crate::master::action::Force;
use crate::master::event::{Ended, Event, GenerationId, WorkerId};
use crate::runtime::php::files::{Fingerprint, FingerprintCache};
use crate::runtime::php::protocol::BootTimes;
use crate::scoreboard::slot_reader;
use crate::spawn::event::Token;
use crate::sys::Error;
use crate::worker::Settings;
use crate::zygotes::Stop;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Nothing checks loaded code for changes.
    pub(super) is_code_cached: bool,
    /// The boot time of its application, if it boots once.
    pub(super) boot: Option<BootTimes>,
    /// The servers that its application connected to: each worker loads it.
    pub(super) connected_to: Option<String>,
    pub(super) powered_by: Option<String>,
    /// The directory of its extensions, and those from elsewhere, when it was ready.
    pub(super) extensions: Vec<(PathBuf, Fingerprint)>,
}

impl Executor {
    /// Attaches a generation to a zygote, which gets nothing of it yet. Returns `false` if none fits.
    pub(super) fn attach(&mut self, id: GenerationId) -> Result<bool, Error> {
        let Some(pid) = self.preloaders.fitting_preloader(&self.context.pools, id) else {
            return Ok(false);
        };
        self.context.open(id)?;
        // A failing start reports the fault.
        if self.context.pools.read_env_file(id).is_err() {
            return Ok(false);
        }
        let Some(preloader) = self.preloaders.by_pid.get_mut(&pid) else {
            return Ok(false);
        };
        preloader.members.join(id);
        let origin = preloader.origin;
        let facts = preloader.facts.clone().filter(|_| preloader.start.is_none());
        log::debug!(
            "[pool {}] has workers of zygote {pid}",
            self.context.pools.generation_name(id)
        );
        if let Some(generation) = self.context.pools.generations.get_mut(&id) {
            if let Some(resources) = &mut generation.resources {
                resources.preloader = Some(pid);
                resources.memory = None;
            }
            generation.make.begin(origin, !generation.slots.is_empty());
        }
        if let Some(facts) = facts {
            let (services, pools) = (&mut self.context.services, &mut self.context.pools);
            self.preloaders.zygote_serves(services, pools, id, facts);
        }
        Ok(true)
    }

    pub(super) fn stop_preloader(&mut self, id: GenerationId, force: Force) {
        if self.stop_program(id, force) {
            return;
        }
        let has_unforked = !self.context.pools.unforked_of(id).is_empty();
        let Some(preloader) = self.preloaders.preloader_of(&self.context.pools, id) else {
            return;
        };
        let start = preloader.start;
        match preloader.members.stop(id, force, start.is_some(), has_unforked) {
            Stop::Leave => self.detach(id, Ended::Code(0)),
            Stop::Forget => preloader.send_plain(&Command::Forget {
                generation: u64::from(id.0),
            }),
            Stop::Wait => {}
            Stop::Cancel => self.cancel_start(start),
            Stop::Expire => start.into_iter().for_each(|token| self.expire_start(token)),
            Stop::Close => preloader.close(),
            Stop::Signal(force) => preloader.stop(force),
        }
    }

    pub(super) fn cancel_start(&mut self, start: Option<Token>) {
        start
            .into_iter()
            .for_each(|token| self.context.spawner.cancel(token));
        self.drain_spawner();
    }

    pub(super) fn expire_start(&mut self, token: Token) {
        self.context.spawner.expire(token);
        self.drain_spawner();
    }

    pub(super) fn forgotten(&mut self, pid: i32, generation: u64) {
        let preloader = self.preloaders.by_pid.get(&pid);
        if let Some(id) = preloader.and_then(|it| it.members.forgotten(generation)) {
            self.detach(id, Ended::Code(0));
        }
    }

    pub(super) fn detach(&mut self, id: GenerationId, exit: Ended) {
        self.find_unannounced(id);
        self.preloaders.end_warm_up(&mut self.context.services, id);
        if let Some(preloader) = self.preloaders.preloader_of(&self.context.pools, id) {
            preloader.members.leave(id);
        }
        self.preloaders.zygotes_to_check = true;
        if let Some(resources) = self.context.pools.resources_mut(id) {
            resources.preloader = None;
            resources.memory = None;
        }
        for worker in self.context.pools.unforked_of(id) {
            self.fork_failed(worker);
        }
        self.context.pools.vacated.insert(id);
        self.context
            .services
            .happened
            .push_back(Event::PreloaderGone(id, exit));
    }

    /// Adopts workers that an ended preloader made without announcing them: they have their slots and may serve.
    fn find_unannounced(&mut self, id: GenerationId) {
        for worker in self.context.pools.unforked_of(id) {
            let pid = self
                .context
                .pools
                .pid_in_slot(worker)
                .filter(|pid| self.is_new_child(id, *pid));
            if let Some(pid) = pid {
                self.forked_as(worker, pid);
            }
        }
    }
}

impl Preloaders {
    pub(super) fn preloader_of(&mut self, pools: &Pools, id: GenerationId) -> Option<&mut Preloader> {
        let pid = pools.preloader_pid(id)?;
        self.by_pid.get_mut(&pid)
    }

    pub(super) fn preloader_name(&self, pools: &Pools, pid: i32) -> String {
        let preloader = self.by_pid.get(&pid);
        preloader.map_or_else(String::new, |it| whose(&pools.generations, it).0)
    }
}

impl Programs {
    pub(super) fn pids_of(&self, pools: &Pools, id: GenerationId) -> Vec<i32> {
        let resources = pools.generations.get(&id).and_then(|it| it.resources.as_ref());
        let molds = resources.into_iter().flat_map(|it| [it.preloader, it.next_mold]);
        let program = self.running.get(&id).into_iter().flat_map(RunningProgram::pids);
        molds.flatten().chain(program).collect()
    }
}

impl Preloaders {
    /// The youngest zygote from the same sources.
    pub(super) fn fitting_preloader(&self, pools: &Pools, id: GenerationId) -> Option<i32> {
        self.zygote_from(&pools.generations.get(&id)?.common()?)
    }

    pub(super) fn zygote_from(&self, wanted: &Settings) -> Option<i32> {
        let fitting = self.by_pid.values().filter(|it| it.members.accepts(wanted));
        fitting.map(|preloader| preloader.pid).max()
    }

    pub(super) fn take_preloader(&mut self, pools: &mut Pools, id: GenerationId, mut preloader: Preloader) {
        let pid = preloader.pid;
        preloader.members.join(id);
        self.by_pid.insert(pid, preloader);
        if let Some(resources) = pools.resources_mut(id) {
            resources.preloader = Some(pid);
            resources.memory = None;
        }
    }
}

impl Pools {
    pub(super) fn preloader_pid(&self, id: GenerationId) -> Option<i32> {
        self.generations.get(&id)?.resources.as_ref()?.preloader
    }

    fn unforked_of(&self, id: GenerationId) -> Vec<WorkerId> {
        let generation = self.generations.get(&id);
        let workers = generation.into_iter().flat_map(|it| it.slots.values());
        let is_unforked = |id: &WorkerId| self.workers.get(id).is_some_and(|worker| worker.pid.is_none());
        workers.copied().filter(is_unforked).collect()
    }

    /// The process that claims a worker's slot; the value is untrusted.
    fn pid_in_slot(&self, worker: WorkerId) -> Option<i32> {
        let worker = self.workers.get(&worker)?;
        let page = self.page(worker)?;
        i32::try_from(slot_reader::read(page).pid)
            .ok()
            .filter(|pid| *pid > 0)
    }
}

impl Services {
    pub(super) fn is_as_made(&self, common: &Settings, preloader: &Preloader) -> bool {
        // Facts of a starting process are incomplete.
        let Some(facts) = &preloader.facts else {
            return false;
        };
        let mut fingerprints = FingerprintCache::default();
        let origin = self
            .origin(&common.pool)
            .map(|origin| fingerprints.origin(&origin));
        let mut extensions = facts.extensions.iter();
        origin == preloader.origin && extensions.all(|(path, then)| fingerprints.path(path) == *then)
    }
}

impl Generation {
    /// The sources of its workers' zygote; `None`: it has its own preloader.
    pub(super) fn common(&self) -> Option<Settings> {
        self.uses_zygote().then(|| match self.make.trial {
            Some(_) => common(&self.settings_without_faults()),
            None => common(&self.settings),
        })
    }
}

pub(super) fn common(settings: &Settings) -> Settings {
    Settings {
        pool: Arc::new(sharing::common(&settings.pool)),
        identity: None,
        started: 0,
        slots: 0,
        restart_mark: None,
        ..settings.clone()
    }
}
