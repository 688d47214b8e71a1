//! Zygotes: processes that have started PHP and fork workers for pools of any user. Each pool has its own memory in
//! place of the shared parts; the master sends it with each fork command.

use super::generation::Generation;
use super::launches::{exit_of_report, summary};
use super::preloader::Command;
use super::provenance::credible_reason;
use super::shared::{MadeFrom, common};
use super::{Executor, Helpers, Pools};
use crate::config::{Application, Config, Pool, Preloading, sharing};
use crate::master::event::{Exit, GenerationId};
use crate::runtime::php::protocol::Parcel;
use crate::spawn::report::Report;
use crate::sys::identity::{self, Identity};
use crate::sys::shared_mappings::Template;
use crate::sys::{Error, memfile, process, rights};
use crate::worker::{Settings, WorkerContext};
use nix::sys::signal::Signal;
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

const MEMORY: &str = "forkyard php";
const SETTINGS: &str = "forkyard settings";
const MOST_UNFIT: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Unfit(Vec<(Settings, u64, String)>);

impl Unfit {
    fn note(&mut self, common: Settings, reload: u64, reason: &str) {
        self.0.retain(|(_, then, _)| *then == reload);
        if self.0.len() < MOST_UNFIT {
            self.0.push((common, reload, reason.to_owned()));
        }
    }

    fn reason(&self, common: &Settings, reload: u64) -> Option<&str> {
        let mut known = self.0.iter();
        let found = known.find(|(known, then, _)| *then == reload && known == common);
        found.map(|(_, _, reason)| reason.as_str())
    }
}

/// A pool's user must not be the zygotes' user: its scripts could signal them.
pub(super) fn not_reserved(identity: Identity) -> Result<Identity, Error> {
    match identity.uid == rights::SOURCE_OF_CHILDREN {
        true => Err(Error::new(
            "setuid",
            identity.uid.to_string(),
            nix::errno::Errno::EPERM,
        )),
        false => Ok(identity),
    }
}

impl Generation {
    /// Whether its workers come from a zygote. Pools of root never use one, because a zygote forks no workers of root.
    pub(super) fn uses_zygote(&self) -> bool {
        let identity = self.settings.identity.as_ref();
        let becomes_user = identity.is_some_and(|identity| identity.uid != 0);
        let becomes_user = becomes_user || self.has_applications();
        let may = becomes_user || !identity::is_root();
        may && self.make.unfit.is_none() && sharing::wants_zygote(&self.settings.pool)
    }

    pub(super) fn has_applications(&self) -> bool {
        self.settings.pool.applications.is_some()
    }

    /// The kind of its preloader, in the configuration's words, and the reason if it differs from the setting.
    pub(super) fn preloading(&self) -> (Option<String>, Option<String>) {
        let Application::Php(php) = &self.settings.pool.application else {
            return (None, None);
        };
        if php.preloading != Preloading::Zygote || self.uses_zygote() {
            return (Some(php.preloading.as_str().to_owned()), None);
        }
        let reason = self.make.unfit.as_deref().unwrap_or("it runs as root");
        (Some(Preloading::Own.as_str().to_owned()), Some(reason.to_owned()))
    }

    pub(super) fn settings_in_use(&self) -> Settings {
        let mut settings = self.settings_without_faults();
        if let Application::Php(php) = &mut Arc::make_mut(&mut settings.pool).application {
            if php.preloading == Preloading::Zygote && !self.uses_zygote() {
                php.preloading = Preloading::Own;
            }
        }
        settings
    }
}

impl Executor {
    /// Before a start: a zygote that was unfit is not tried again before the next reload.
    pub(super) fn recall_unfit(&mut self, id: GenerationId) {
        let Some(generation) = self.pools.generations.get_mut(&id) else {
            return;
        };
        let common = generation.uses_zygote().then(|| generation.common()).flatten();
        let reason = common.and_then(|common| self.helpers.unfit.reason(&common, self.reload.count));
        if let Some(reason) = reason {
            generation.make.unfit = Some(reason.to_owned());
        }
    }

    /// No such zygote can be made: its pools have their own preloaders until the next reload.
    fn note_unfit(&mut self, pid: i32, reason: &str) {
        let Some(preloader) = self.helpers.preloaders.get(&pid).filter(|it| it.is_zygote()) else {
            return;
        };
        if let Some(made_from) = &preloader.made_from {
            let common = made_from.settings().clone();
            self.helpers.unfit.note(common, self.reload.count, reason);
        }
        for id in preloader.members.all() {
            if let Some(generation) = self.pools.generations.get_mut(&id) {
                generation.make.unfit = Some(reason.to_owned());
            }
        }
    }

    /// Detaches the pools of a zygote that forks no workers for them; `None` if it is none. `is_preliminary`: they try
    /// their settings, and use another zygote then.
    fn give_up_zygote(
        &mut self,
        pid: i32,
        reason: &str,
        is_preliminary: bool,
    ) -> Option<(BTreeSet<GenerationId>, BTreeSet<GenerationId>)> {
        let reason = credible_reason(reason);
        self.note_unfit(pid, &reason);
        let mut preloaders = self.helpers.preloaders.get_mut(&pid).into_iter();
        let zygote = preloaders.find(|it| it.is_zygote())?;
        // Most pools use a zygote by default.
        let level = match is_preliminary {
            true => log::Level::Debug,
            false => log::Level::Info,
        };
        log::log!(
            level,
            "PHP can't be started once for all pools: {reason}; each pool gets its own preloader"
        );
        zygote.is_ending = true;
        Some(zygote.members.take())
    }

    /// A zygote failed to start: its pools get other preloaders. Returns `false` if it is no zygote.
    pub(super) fn zygote_failed(&mut self, pid: i32, report: &Report) -> bool {
        let (reason, exit) = (summary(report), exit_of_report(report));
        let is_preliminary = self.is_tried_again(report);
        let is_cancelled = self.helpers.preloaders.get(&pid).is_some_and(|it| it.is_ending);
        let given_up = (!is_cancelled).then(|| self.give_up_zygote(pid, reason, is_preliminary));
        let Some((kept, leaving)) = given_up.flatten() else {
            return false;
        };
        self.preloader_gone(pid, exit);
        for id in leaving {
            self.detach(id, Exit::Code(0));
        }
        for id in kept {
            self.start_preloader(id);
        }
        true
    }

    pub(super) fn zygote_unfit(&mut self, pid: i32, reason: &str) {
        let Some((kept, leaving)) = self.give_up_zygote(pid, reason, false) else {
            return;
        };
        let Some(preloader) = self.helpers.preloaders.get(&pid) else {
            return;
        };
        let start = preloader.start;
        let _ = shutdown(preloader.channel.as_raw_fd(), Shutdown::Write);
        if let Some(token) = start {
            // For the kit only; it is reaped like any process.
            self.helpers.spawner.is_up(token);
            self.drain_spawner();
        }
        for id in leaving {
            self.detach(id, Exit::Code(0));
        }
        for id in kept {
            self.start_preloader(id);
        }
    }

    /// After a reload, new workers come only from zygotes with the present sources. `is_new`: none of the present ones
    /// qualifies.
    pub(super) fn outdate_zygotes(&mut self, is_new: bool) {
        for preloader in self.helpers.preloaders.values_mut().filter(|it| it.is_zygote()) {
            let is_outdated = match &preloader.made_from {
                Some(made_from) => is_new || !self.context.is_as_made(made_from, preloader),
                None => true,
            };
            if let Some(made_from) = &mut preloader.made_from {
                made_from.is_outdated |= is_outdated;
            }
        }
        self.helpers.zygotes_to_check = true;
        self.helpers.zygotes_to_start = true;
    }

    /// Starts the zygotes that several pools use, so that the first request does not wait for PHP. One for a single
    /// pool comes with its workers.
    pub(in crate::master) fn start_zygotes(&mut self) {
        if !std::mem::take(&mut self.helpers.zygotes_to_start) {
            return;
        }
        let latest = self.pools.by_id.values();
        let latest = latest.filter_map(|pool| self.pools.generations.get(&pool.latest.or(pool.serving)?));
        let kinds = latest.filter_map(|it| Some((it.common()?, it.has_applications())));
        for common in several(kinds, MOST_STARTED_AT_ONCE) {
            self.try_start_zygote(common);
        }
    }

    /// Starts the most common zygote before the first configuration's pools are opened, so that both happen at once.
    pub(in crate::master) fn start_first_zygote(&mut self, config: &Config) {
        let is_root = identity::is_root();
        let is_users = |pool: &Pool| !is_root || pool.user.as_deref().is_some_and(|user| user != "root");
        let pools = config.pools.iter().filter(|pool| sharing::wants_zygote(pool));
        let pools = pools.filter(|pool| pool.applications.is_some() || is_users(pool));
        let kinds = pools.map(|pool| {
            let settings = self.context.bare_settings(pool.clone(), &config.global);
            (common(&settings), pool.applications.is_some())
        });
        for common in several(kinds, 1) {
            self.try_start_zygote(common);
        }
    }

    fn try_start_zygote(&mut self, common: Settings) {
        let is_unfit = self.helpers.unfit.reason(&common, self.reload.count).is_some();
        if is_unfit || self.helpers.zygote_from(&common).is_some() {
            return;
        }
        if let Err(error) = self.start_zygote(common) {
            log::error!("can't start a zygote: {error}");
        }
    }

    pub(in crate::master) fn end_unused_zygotes(&mut self) {
        if !std::mem::take(&mut self.helpers.zygotes_to_check) {
            return;
        }
        let idle = self
            .helpers
            .preloaders
            .values()
            .filter(|it| it.is_zygote() && !it.is_ending && it.members.all().next().is_none());
        let unused: Vec<i32> = idle
            .filter_map(|it| Some((it.pid, it.made_from.as_ref()?)))
            .filter(|(_, made_from)| !self.pools.need(made_from))
            .map(|(pid, _)| pid)
            .collect();
        for pid in unused {
            let Some(zygote) = self.helpers.preloaders.get_mut(&pid) else {
                continue;
            };
            log::debug!("zygote {pid} ends: no pools are like it");
            zygote.is_ending = true;
            match zygote.start {
                Some(token) => {
                    self.helpers.spawner.cancel(token);
                    self.drain_spawner();
                }
                None => {
                    let _ = shutdown(zygote.channel.as_raw_fd(), Shutdown::Write);
                }
            }
        }
    }
}

const MOST_STARTED_AT_ONCE: usize = 4;
const MOST_KINDS: usize = 16;

/// The time limit of a killed process before it is left alone.
const END: Duration = Duration::from_secs(2);

/// The sources of zygotes that more than one pool can use, up to `most`. `kinds`: each pool's sources, and whether it
/// stands for many.
fn several(kinds: impl Iterator<Item = (Settings, bool)>, most: usize) -> Vec<Settings> {
    let (mut known, mut found): (Vec<Settings>, Vec<Settings>) = (Vec::new(), Vec::new());
    for (common, is_many) in kinds {
        if found.len() >= most {
            break;
        }
        if found.contains(&common) {
            continue;
        }
        if is_many || known.contains(&common) {
            found.push(common);
        } else if known.len() < MOST_KINDS {
            known.push(common);
        }
    }
    found
}

impl Helpers {
    pub(in crate::master) fn end_zygotes(&mut self) {
        let zygotes = self.preloaders.values().filter(|it| it.is_zygote());
        for pid in zygotes.map(|it| it.pid) {
            let _ = process::send_signal(pid, Signal::SIGKILL);
            process::reap_soon(pid, END);
        }
    }

    /// The fork command with all that a worker needs; `None`: the generation uses no zygote.
    pub(super) fn command_to_zygote(
        &mut self,
        pools: &mut Pools,
        id: GenerationId,
        worker: u64,
        own: WorkerContext,
    ) -> Result<Result<(Command, Vec<OwnedFd>), WorkerContext>, Error> {
        let pid = pools.preloader_pid(id);
        let zygote = pid
            .and_then(|pid| self.preloaders.get(&pid))
            .filter(|it| it.is_zygote());
        let Some(zygote) = zygote else {
            return Ok(Err(own));
        };
        let memory = match &zygote.template {
            Some(template) => Some(pools.memory(id, template)?),
            None => None,
        };
        let (parcel, mut descriptors) = pools.parcel(id, memory)?;
        let is_routed = own.is_routed();
        let (slot, own) = own.take_apart();
        descriptors.extend(own);
        let command = Command::Spawn {
            worker,
            slot,
            is_routed,
            parcel: Some(parcel),
        };
        Ok(Ok((command, descriptors)))
    }
}

impl Pools {
    fn need(&self, made_from: &MadeFrom) -> bool {
        let mut users = self.generations.values().filter(|it| made_from.serves(it));
        let Some(first) = users.next() else {
            return false;
        };
        first.has_applications() || users.any(|it| it.has_applications() || it.pool != first.pool)
    }

    pub(super) fn parcel(
        &self,
        id: GenerationId,
        memory: Option<OwnedFd>,
    ) -> Result<(Parcel, Vec<OwnedFd>), Error> {
        let (settings, generation) = self.context(id)?.take_apart();
        // Serialising plain values can't fail.
        let json = serde_json::to_vec(&settings).unwrap_or_default();
        let parcel = Parcel {
            has_memory: memory.is_some(),
            context: generation.len(),
        };
        let mut descriptors = vec![memfile::sealed(SETTINGS, &json)?];
        descriptors.extend(memory);
        descriptors.extend(generation);
        Ok((parcel, descriptors))
    }

    pub(super) fn memory(&mut self, id: GenerationId, template: &Template) -> Result<OwnedFd, Error> {
        let nothing = || Error::new("memory", "the pool is closed", nix::errno::Errno::EINVAL);
        let resources = self.resources_mut(id).ok_or_else(nothing)?;
        let memory = match &resources.memory {
            Some(memory) => memory,
            None => resources.memory.insert(template.fill(MEMORY)?),
        };
        memory
            .try_clone()
            .map_err(|error| Error::from_io("dup", "", &error))
    }

    /// The user of a generation's zygote: a new worker still has it when the master first sees it.
    pub(super) fn zygotes_user(&self, id: GenerationId) -> Option<u32> {
        let generation = self.generations.get(&id);
        generation.filter(|generation| generation.uses_zygote())?;
        Some(match identity::is_root() {
            true => rights::SOURCE_OF_CHILDREN,
            false => identity::own_user(),
        })
    }
}
