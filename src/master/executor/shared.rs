//! Maps generations to the processes that fork their workers. The core gives each generation a preloader; here
//! generations are attached to a zygote.

use super::app_log::whose;
use super::generation::Generation;
use super::preloader::{Command, Preloader};
use super::programs::RunningProgram;
use super::{Context, Executor, Helpers, Pools};
use crate::config::sharing;
use crate::master::action::Force;
use crate::master::event::{Event, Exit, GenerationId, WorkerId};
use crate::runtime::php::files::{Fingerprint, FingerprintCache};
use crate::runtime::php::protocol::BootTimes;
use crate::scoreboard::slot_reader;
use crate::sys::Error;
use crate::sys::process;
use crate::worker::Settings;
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) kept: BTreeSet<GenerationId>,
    pub(super) leaving: BTreeSet<GenerationId>,
}

impl Members {
    pub(super) fn all(&self) -> impl Iterator<Item = GenerationId> + '_ {
        self.kept.union(&self.leaving).copied()
    }

    pub(super) fn contains(&self, id: GenerationId) -> bool {
        self.kept.contains(&id) || self.leaving.contains(&id)
    }

    pub(super) fn take(&mut self) -> (BTreeSet<GenerationId>, BTreeSet<GenerationId>) {
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.leaving))
    }

    fn remove(&mut self, id: GenerationId) {
        self.kept.remove(&id);
        self.leaving.remove(&id);
    }
}

#[derive(Debug)]
pub(super) struct MadeFrom {
    common: Settings,
    origin: Option<Fingerprint>,
    pub(super) is_outdated: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    pub(super) is_code_cached: bool,
    /// The boot time of its application, if it boots once.
    pub(super) boot: Option<BootTimes>,
    pub(super) connected_to: Option<String>,
    pub(super) powered_by: Option<String>,
    /// The directory of its extensions, and others, as of its start.
    pub(super) extensions: Vec<(PathBuf, Fingerprint)>,
}

impl MadeFrom {
    pub(super) fn new(common: Settings, origin: Option<Fingerprint>) -> MadeFrom {
        MadeFrom {
            common,
            origin,
            is_outdated: false,
        }
    }

    pub(super) fn serves(&self, generation: &Generation) -> bool {
        !self.is_outdated && generation.common().as_ref() == Some(&self.common)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.common
    }
}

impl Executor {
    /// Attaches a generation to a zygote. Returns `false` if none fits.
    pub(super) fn attach(&mut self, id: GenerationId) -> Result<bool, Error> {
        let Some(pid) = self.helpers.fitting_preloader(&self.pools, id) else {
            return Ok(false);
        };
        self.open(id)?;
        // A failing start reports the fault.
        if self.pools.read_env_file(id).is_err() {
            return Ok(false);
        }
        let Some(preloader) = self.helpers.preloaders.get_mut(&pid) else {
            return Ok(false);
        };
        preloader.members.kept.insert(id);
        let origin = preloader
            .made_from
            .as_ref()
            .and_then(|made_from| made_from.origin);
        let facts = preloader.facts.clone().filter(|_| preloader.start.is_none());
        log::debug!(
            "[pool {}] has workers of zygote {pid}",
            self.pools.generation_name(id)
        );
        if let Some(generation) = self.pools.generations.get_mut(&id) {
            if let Some(resources) = &mut generation.resources {
                resources.preloader = Some(pid);
                resources.memory = None;
            }
            generation.make.begin(origin, !generation.slots.is_empty());
        }
        if let Some(facts) = facts {
            let (context, pools) = (&mut self.context, &mut self.pools);
            self.helpers.zygote_serves(context, pools, id, facts);
        }
        Ok(true)
    }

    pub(super) fn stop_preloader(&mut self, id: GenerationId, force: Force) {
        if self.stop_program(id, force) {
            return;
        }
        let has_unforked = !self.pools.unforked_of(id).is_empty();
        let Some(preloader) = self.helpers.preloader_of(&self.pools, id) else {
            return;
        };
        // Whether an unused zygote stays is decided later.
        let is_kept = preloader.is_zygote() && !preloader.is_ending;
        let others = is_kept || preloader.members.kept.iter().any(|member| *member != id);
        let leaves = preloader.members.leaving.contains(&id);
        let start = preloader.start;
        let signal = match force {
            // It has nothing of a pool except pending commands.
            Force::Ask | Force::Terminate if is_kept && !leaves && !has_unforked => {
                self.detach(id, Exit::Code(0));
                return;
            }
            Force::Ask | Force::Terminate if others => {
                if !leaves {
                    preloader.members.kept.remove(&id);
                    preloader.members.leaving.insert(id);
                    preloader.send_plain(&Command::Forget {
                        generation: u64::from(id.0),
                    });
                }
                return;
            }
            // It has not answered for long; the other pools decide whether they keep it.
            Force::Kill if others && leaves => {
                self.detach(id, Exit::Code(0));
                return;
            }
            Force::Ask | Force::Terminate if start.is_some() => {
                preloader.is_ending = true;
                start
                    .into_iter()
                    .for_each(|token| self.helpers.spawner.cancel(token));
                self.drain_spawner();
                return;
            }
            Force::Kill if start.is_some() => {
                start
                    .into_iter()
                    .for_each(|token| self.helpers.spawner.expire(token));
                self.drain_spawner();
                return;
            }
            Force::Ask => {
                preloader.is_ending = true;
                // The channel stays open until the process is reaped: answers may still come.
                let _ = shutdown(preloader.channel.as_raw_fd(), Shutdown::Write);
                return;
            }
            Force::Terminate => Signal::SIGTERM,
            // It fails all pools.
            Force::Kill => Signal::SIGKILL,
        };
        preloader.is_ending = true;
        if let Err(error) = process::send_signal(preloader.pid, signal) {
            log::error!("{error}");
        }
    }

    pub(super) fn forgotten(&mut self, pid: i32, generation: u64) {
        let members = self
            .helpers
            .preloaders
            .get(&pid)
            .map(|preloader| &preloader.members);
        let id = members.and_then(|members| {
            let mut leaving = members.leaving.iter();
            leaving.find(|id| u64::from(id.0) == generation).copied()
        });
        if let Some(id) = id {
            self.detach(id, Exit::Code(0));
        }
    }

    pub(super) fn detach(&mut self, id: GenerationId, exit: Exit) {
        self.find_unannounced(id);
        self.helpers.end_warm_up(&mut self.context, id);
        if let Some(preloader) = self.helpers.preloader_of(&self.pools, id) {
            preloader.members.remove(id);
        }
        self.helpers.zygotes_to_check = true;
        if let Some(resources) = self.pools.resources_mut(id) {
            resources.preloader = None;
            resources.memory = None;
        }
        for worker in self.pools.unforked_of(id) {
            self.fork_failed(worker);
        }
        self.pools.vacated.insert(id);
        self.context.happened.push_back(Event::PreloaderGone(id, exit));
    }

    /// Adopts workers that an ended preloader made without announcing them: they have their slots and may serve.
    fn find_unannounced(&mut self, id: GenerationId) {
        for worker in self.pools.unforked_of(id) {
            let pid = self
                .pools
                .pid_in_slot(worker)
                .filter(|pid| self.is_new_child(id, *pid));
            if let Some(pid) = pid {
                self.forked_as(worker, pid);
            }
        }
    }
}

impl Helpers {
    pub(super) fn preloader_of(&mut self, pools: &Pools, id: GenerationId) -> Option<&mut Preloader> {
        let pid = pools.preloader_pid(id)?;
        self.preloaders.get_mut(&pid)
    }

    pub(super) fn preloader_name(&self, pools: &Pools, pid: i32) -> String {
        let preloader = self.preloaders.get(&pid);
        preloader.map_or_else(String::new, |it| whose(&pools.generations, it).0)
    }

    pub(super) fn pids_of(&self, pools: &Pools, id: GenerationId) -> Vec<i32> {
        let resources = pools.generations.get(&id).and_then(|it| it.resources.as_ref());
        let molds = resources.into_iter().flat_map(|it| [it.preloader, it.next_mold]);
        let program = self.programs.get(&id).into_iter().flat_map(RunningProgram::pids);
        molds.flatten().chain(program).collect()
    }

    /// The youngest zygote from the same sources.
    pub(super) fn fitting_preloader(&self, pools: &Pools, id: GenerationId) -> Option<i32> {
        self.zygote_from(&pools.generations.get(&id)?.common()?)
    }

    pub(super) fn zygote_from(&self, wanted: &Settings) -> Option<i32> {
        let fits = |preloader: &&Preloader| {
            let made_from = preloader.made_from.as_ref();
            !preloader.is_ending && made_from.is_some_and(|it| !it.is_outdated && it.common == *wanted)
        };
        let fitting = self.preloaders.values().filter(fits);
        fitting.map(|preloader| preloader.pid).max()
    }

    pub(super) fn take_preloader(&mut self, pools: &mut Pools, id: GenerationId, mut preloader: Preloader) {
        let pid = preloader.pid;
        preloader.members.kept.insert(id);
        self.preloaders.insert(pid, preloader);
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
        let page = self
            .resources(worker.generation)?
            .board
            .slot(worker.slot as usize)?;
        i32::try_from(slot_reader::read(page).pid)
            .ok()
            .filter(|pid| *pid > 0)
    }

    /// The sources of a new zygote for this generation; `None`: it has its own preloader. Call it after
    /// [`Pools::note_origin`].
    pub(super) fn made_from(&self, id: GenerationId) -> Option<MadeFrom> {
        let generation = self.generations.get(&id)?;
        Some(MadeFrom::new(generation.common()?, generation.make.origin))
    }
}

impl Context {
    pub(super) fn is_as_made(&self, made_from: &MadeFrom, preloader: &Preloader) -> bool {
        // Facts of a starting process are incomplete.
        let Some(facts) = &preloader.facts else {
            return false;
        };
        let mut fingerprints = FingerprintCache::default();
        let origin = self
            .origin(&made_from.common.pool)
            .map(|origin| fingerprints.origin(&origin));
        let mut extensions = facts.extensions.iter();
        origin == made_from.origin && extensions.all(|(path, then)| fingerprints.path(path) == *then)
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
