//! Which process makes the workers of which generation. The core gives each generation a preloader of its own; here the
//! generations of pools that share one are attached to one process. It is stopped when the last one leaves it.

use super::preloader::{Command, Preloader};
use super::{Context, Executor, Helpers, Pools, Reload};
use crate::config::sharing;
use crate::master::action::Force;
use crate::master::event::{Event, Exit, GenerationId, WorkerId};
use crate::runtime::php::files::{Fingerprint, Looker};
use crate::sys::Error;
use crate::sys::process;
use crate::worker::Settings;
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// The generations of a process.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// It makes workers of these.
    pub(super) staying: BTreeSet<GenerationId>,
    /// These are told that they have left when it has done what they had asked for.
    pub(super) leaving: BTreeSet<GenerationId>,
}

impl Members {
    pub(super) fn all(&self) -> impl Iterator<Item = GenerationId> + '_ {
        self.staying.union(&self.leaving).copied()
    }

    pub(super) fn contains(&self, id: GenerationId) -> bool {
        self.staying.contains(&id) || self.leaving.contains(&id)
    }

    fn remove(&mut self, id: GenerationId) {
        self.staying.remove(&id);
        self.leaving.remove(&id);
    }
}

/// What a process that can be shared was made from.
#[derive(Debug)]
pub(super) struct Mould {
    /// The settings that its pools have in common.
    common: Settings,
    /// The number of the last reload before it was started.
    reload: u64,
    /// The files that it was started from.
    origin: Option<Fingerprint>,
}

/// What a process said of itself when it was ready.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// Nothing looks by itself whether code that it has loaded was changed.
    pub(super) is_code_fixed: bool,
    /// What it says of itself to clients.
    pub(super) powered_by: Option<String>,
    /// The directory of its extensions, and those from elsewhere, as they were then.
    pub(super) extensions: Vec<(PathBuf, Fingerprint)>,
}

impl Mould {
    /// The settings that its pools have in common.
    pub(super) fn settings(&self) -> &Settings {
        &self.common
    }
}

impl Executor {
    /// Attaches a generation to a process that its pool shares. `false`: there is none for it.
    pub(super) fn attach(&mut self, id: GenerationId) -> Result<bool, Error> {
        let Some(pid) = self.helpers.fitting_preloader(&self.context, &self.pools, id) else {
            return Ok(false);
        };
        self.open(id)?;
        let (kit, descriptors) = self.pools.kit(id)?.take_apart();
        let generation = u64::from(id.0);
        let Some(preloader) = self.helpers.preloaders.get_mut(&pid) else {
            return Ok(false);
        };
        preloader.send(&Command::Adopt { generation, kit }, descriptors);
        preloader.members.staying.insert(id);
        let origin = preloader.mould.as_ref().and_then(|mould| mould.origin);
        let facts = preloader.facts.clone().filter(|_| preloader.start.is_none());
        log::debug!("[pool {}] shares preloader {pid}", self.pools.generation_name(id));
        if let Some(generation) = self.pools.generations.get_mut(&id) {
            if let Some(resources) = &mut generation.resources {
                resources.preloader = Some(pid);
            }
            generation.make.begin(origin, !generation.seats.is_empty());
        }
        if let Some(facts) = facts {
            self.pools.note_facts(id, facts);
            self.context.happened.push_back(Event::PreloaderReady(id));
        }
        Ok(true)
    }

    /// Makes a generation's preloader end, or, if others use its process, the generation leave it.
    pub(super) fn stop_preloader(&mut self, id: GenerationId, force: Force) {
        if self.stop_program(id, force) {
            return;
        }
        let Some(preloader) = self.helpers.preloader_of(&self.pools, id) else {
            return;
        };
        let others = preloader.members.staying.iter().any(|member| *member != id);
        let leaves = preloader.members.leaving.contains(&id);
        let start = preloader.start;
        let signal = match force {
            Force::Ask | Force::Terminate if others => {
                if !leaves {
                    preloader.members.staying.remove(&id);
                    preloader.members.leaving.insert(id);
                    preloader.send_plain(&Command::Forget {
                        generation: u64::from(id.0),
                    });
                }
                return;
            }
            // The process has not answered for long. Whether that is good enough for the others is theirs to say.
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
                // The channel itself stays open until the process is reaped: answers may still be under way.
                let _ = shutdown(preloader.channel.as_raw_fd(), Shutdown::Write);
                return;
            }
            Force::Terminate => Signal::SIGTERM,
            // It does not do its part, for nobody.
            Force::Kill => Signal::SIGKILL,
        };
        preloader.is_ending = true;
        if let Err(error) = process::send_signal(preloader.pid, signal) {
            log::error!("{error}");
        }
    }

    /// A process has let go of a generation, as it says. One that was not told to is not listened to.
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

    /// A generation has no preloader any more.
    pub(super) fn detach(&mut self, id: GenerationId, exit: Exit) {
        if let Some(preloader) = self.helpers.preloader_of(&self.pools, id) {
            preloader.members.remove(id);
        }
        if let Some(resources) = self.pools.resources_mut(id) {
            resources.preloader = None;
        }
        let unborn: Vec<WorkerId> = self
            .pools
            .workers
            .iter()
            .filter(|(_, w)| w.generation == id && w.pid.is_none())
            .map(|(w, _)| *w)
            .collect();
        for worker in unborn {
            self.fork_failed(worker);
        }
        self.context.happened.push_back(Event::PreloaderGone(id, exit));
    }
}

impl Helpers {
    /// The process that makes a generation's workers.
    pub(super) fn preloader_of(&mut self, pools: &Pools, id: GenerationId) -> Option<&mut Preloader> {
        let pid = pools.preloader_pid(id)?;
        self.preloaders.get_mut(&pid)
    }

    /// What a preloader is called in log lines: its pool, or all of its pools.
    pub(super) fn preloader_name(&self, pools: &Pools, pid: i32) -> String {
        let members = self.preloaders.get(&pid).map(|preloader| &preloader.members);
        let names: BTreeSet<&str> = members
            .into_iter()
            .flat_map(Members::all)
            .map(|id| pools.generation_name(id))
            .collect();
        names.into_iter().collect::<Vec<_>>().join("+")
    }

    /// The process that a generation may join: of the same common settings, and begun by the reload that made the
    /// generation, or later. One from before will do if only the pool's own settings changed, and nothing that the
    /// process is made of.
    fn fitting_preloader(&self, context: &Context, pools: &Pools, id: GenerationId) -> Option<i32> {
        let generation = pools.generations.get(&id)?;
        let wanted = common(&generation.settings)?;
        let make = &generation.make;
        let fits = |preloader: &&Preloader| {
            let Some(mould) = preloader.mould.as_ref().filter(|mould| mould.common == wanted) else {
                return false;
            };
            let is_open = !preloader.is_ending && !preloader.members.staying.is_empty();
            is_open
                && (mould.reload >= make.reload
                    || (make.may_join_older && context.is_as_made(&generation.settings, mould, preloader)))
        };
        let fitting = self.preloaders.values().filter(fits);
        fitting
            .max_by_key(|preloader| (preloader.mould.as_ref().map(|mould| mould.reload), preloader.pid))
            .map(|preloader| preloader.pid)
    }

    /// Takes up a process that was started for a generation.
    pub(super) fn take_preloader(&mut self, pools: &mut Pools, id: GenerationId, mut preloader: Preloader) {
        let pid = preloader.pid;
        preloader.members.staying.insert(id);
        self.preloaders.insert(pid, preloader);
        if let Some(resources) = pools.resources_mut(id) {
            resources.preloader = Some(pid);
        }
    }
}

impl Pools {
    /// Its pid.
    pub(super) fn preloader_pid(&self, id: GenerationId) -> Option<i32> {
        self.generations.get(&id)?.resources.as_ref()?.preloader
    }

    /// The number of a generation in what is said to its preloader; `None`: that has only one.
    pub(super) fn number_in_preloader(&self, id: GenerationId) -> Option<u64> {
        let generation = self.generations.get(&id)?;
        sharing::group(&generation.settings.pool).map(|_| u64::from(id.0))
    }

    /// What a new process for this generation, if it can be shared, is made from. After [`Pools::note_origin`].
    pub(super) fn mould(&self, reload: &Reload, id: GenerationId) -> Option<Mould> {
        let generation = self.generations.get(&id)?;
        Some(Mould {
            common: common(&generation.settings)?,
            reload: reload.count,
            origin: generation.make.origin,
        })
    }
}

impl Context {
    /// Whether a process would be made the same again.
    fn is_as_made(&self, settings: &Settings, mould: &Mould, preloader: &Preloader) -> bool {
        // What is not ready yet is not known well enough.
        let Some(facts) = &preloader.facts else {
            return false;
        };
        let mut looker = Looker::default();
        let origin = self.origin(&settings.pool).map(|origin| looker.origin(&origin));
        let mut extensions = facts.extensions.iter();
        !facts.is_code_fixed
            && origin == mould.origin
            && extensions.all(|(path, then)| looker.place(path) == *then)
    }
}

/// What a process has to be made from that a pool could share; `None`: the pool wants its own.
fn common(settings: &Settings) -> Option<Settings> {
    sharing::group(&settings.pool)?;
    Some(Settings {
        pool: sharing::common(&settings.pool),
        started: 0,
        slots: 0,
        ..settings.clone()
    })
}
