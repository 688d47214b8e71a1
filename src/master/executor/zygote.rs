//! Zygotes: processes that have started PHP and fork workers for pools of any user. Each pool has its own memory in
//! place of the shared parts; the master sends it with each fork command.

use super::generation::Generation;
use super::launches::{exit_of_report, summary};
use super::preloader::Command;
use super::provenance::credible_reason;
use super::shared::common;
use super::{Executor, Helpers, Pools};
use crate::config::{Config, Pool, Preloading, sharing};
use crate::master::event::{Ended, GenerationId};
use crate::runtime::php::protocol::Parcel;
use crate::spawn::report::Report;
use crate::sys::fd::copy;
use crate::sys::identity::{self, Identity};
use crate::sys::shared_mappings::Template;
use crate::sys::{Error, memfile, process, rights};
use crate::worker::{Settings, WorkerContext};
use crate::zygotes::{Members, Released, is_needed, shared_sources};
use nix::sys::signal::Signal;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

const MEMORY: &str = "forkyard php";
const SETTINGS: &str = "forkyard settings";
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
        let Some(php) = self.settings.pool.application.php() else {
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
        if let Some(php) = Arc::make_mut(&mut settings.pool).application.php_mut() {
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
        if let Some(common) = preloader.members.sources() {
            let reload = self.reload.count;
            self.helpers.unfit.note(common.clone(), reload, reason);
        }
        for id in preloader.members.all() {
            if let Some(generation) = self.pools.generations.get_mut(&id) {
                generation.make.unfit = Some(reason.to_owned());
            }
        }
    }

    /// Detaches the pools of a zygote that forks no workers for them; `None` if it is none. `is_preliminary`: they try
    /// their settings, and use another zygote then.
    fn give_up_zygote(&mut self, pid: i32, reason: &str, is_preliminary: bool) -> Option<Released> {
        let reason = credible_reason(reason);
        self.note_unfit(pid, &reason);
        let released = self.helpers.preloaders.get_mut(&pid)?.members.give_up()?;
        // Most pools use a zygote by default.
        let level = match is_preliminary {
            true => log::Level::Debug,
            false => log::Level::Info,
        };
        log::log!(
            level,
            "PHP can't be started once for all pools: {reason}; each pool gets its own preloader"
        );
        Some(released)
    }

    /// A zygote failed to start: its pools get other preloaders. Returns `false` if it is no zygote.
    pub(super) fn zygote_failed(&mut self, pid: i32, report: &Report) -> bool {
        let (reason, exit) = (summary(report), exit_of_report(report));
        let is_preliminary = self.is_tried_again(report);
        let is_cancelled = self
            .helpers
            .preloaders
            .get(&pid)
            .is_some_and(|it| it.members.is_ending());
        let given_up = (!is_cancelled).then(|| self.give_up_zygote(pid, reason, is_preliminary));
        let Some(released) = given_up.flatten() else {
            return false;
        };
        self.preloader_gone(pid, exit);
        self.replace_zygote(released);
        true
    }

    fn replace_zygote(&mut self, released: Released) {
        for id in released.leaving {
            self.detach(id, Ended::Code(0));
        }
        for id in released.kept {
            self.start_preloader(id);
        }
    }

    pub(super) fn zygote_unfit(&mut self, pid: i32, reason: &str) {
        let Some(released) = self.give_up_zygote(pid, reason, false) else {
            return;
        };
        let Some(preloader) = self.helpers.preloaders.get(&pid) else {
            return;
        };
        let start = preloader.start;
        preloader.close();
        if let Some(token) = start {
            // For the kit only; it is reaped like any process.
            self.helpers.spawner.is_up(token);
            self.drain_spawner();
        }
        self.replace_zygote(released);
    }

    /// After a reload, pools only join a zygote that would be made the same again; pools that have another keep it.
    /// `is_new`: no present zygote may be joined.
    pub(super) fn outdate_zygotes(&mut self, is_new: bool) {
        for preloader in self.helpers.preloaders.values_mut() {
            let Some(common) = preloader.members.sources() else {
                continue;
            };
            if is_new || !self.context.is_as_made(common, preloader) {
                preloader.members.outdate();
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
        for common in shared_sources(kinds, MOST_STARTED_AT_ONCE) {
            self.try_start_zygote(common);
        }
    }

    /// Starts one zygote that several pools can use before the first configuration's pools are opened: that takes as
    /// long as PHP's start.
    pub(in crate::master) fn start_first_zygote(&mut self, config: &Config) {
        let is_root = identity::is_root();
        let is_users =
            |pool: &Pool| !is_root || pool.account.user.as_deref().is_some_and(|user| user != "root");
        let pools = config.pools.iter().filter(|pool| sharing::wants_zygote(pool));
        let pools = pools.filter(|pool| pool.applications.is_some() || is_users(pool));
        let kinds = pools.map(|pool| {
            let settings = self.context.bare_settings(pool.clone(), &config.global);
            (common(&settings), pool.applications.is_some())
        });
        for common in shared_sources(kinds, 1) {
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
        for zygote in self.helpers.preloaders.values_mut() {
            if zygote.members.is_unused() && !self.pools.need(&zygote.members) {
                log::debug!("zygote {} ends: no pools are like it", zygote.pid);
                zygote.members.end();
                match zygote.start {
                    Some(token) => self.helpers.spawner.cancel(token),
                    None => zygote.close(),
                }
            }
        }
        self.drain_spawner();
    }
}

/// Pools whose zygotes would all differ get them when they need them.
const MOST_STARTED_AT_ONCE: usize = 4;

/// The time limit of a killed process before it is left alone.
const END: Duration = Duration::from_secs(2);

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
    fn need(&self, zygote: &Members<Settings>) -> bool {
        let serves = |it: &&Generation| it.common().is_some_and(|common| zygote.serves(&common));
        let served = self.generations.values().filter(serves);
        is_needed(served.map(|it| (it.pool, it.has_applications())))
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
        copy(memory)
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
