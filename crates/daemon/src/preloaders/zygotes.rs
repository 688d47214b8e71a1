//! Zygotes: processes that have started PHP and fork workers for pools of any user. Each pool has its own memory in
//! place of the shared parts; the master sends it with each fork command.

use super::Preloaders;
use super::preloader::Preloader;
use crate::context::Context;
use crate::context::generation::closed;
use crate::context::make::credible_reason;
use crate::context::pools::Pools;
use crate::context::services::Services;
use crate::context::zygote::common;
use crate::workers::start_report::{exit_of_report, summary};
use forkyard_config::{Config, Pool, sharing};
use forkyard_core::master::event::{Ended, GenerationId};
use forkyard_core::php_start::NextStart;
use forkyard_core::zygotes::{Choice, Released, is_needed, shared_sources};
use forkyard_runtimes::php::files::FingerprintCache;
use forkyard_runtimes::php::protocol::Parcel;
use forkyard_spawn::report::Report;
use forkyard_sys::fd::copy;
use forkyard_sys::shared_mappings::Template;
use forkyard_sys::{Error, identity, memfile, process};
use forkyard_worker::Settings;
use nix::sys::signal::Signal;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Pools whose zygotes would all differ get them when they need them.
const MOST_STARTED_AT_ONCE: usize = 4;
/// The time limit of a killed process before it is left alone.
const END: Duration = Duration::from_secs(2);
const MEMORY: &str = "forkyard php";
const SETTINGS: &str = "forkyard settings";

impl Preloaders {
    /// Detaches the pools of a zygote that forks no workers for them: they have their own preloaders until the next
    /// reload. `None` if it is no zygote. `is_preliminary`: they try their settings, and use another zygote then.
    fn give_up_zygote(
        &mut self,
        context: &mut Context,
        pid: i32,
        reason: &str,
        is_preliminary: bool,
    ) -> Option<Released> {
        let reason = credible_reason(reason);
        let members = &mut self.by_pid.get_mut(&pid)?.members;
        self.unfit
            .note(members.sources()?.clone(), context.in_force.count, &reason);
        for id in members.all() {
            if let Some(generation) = context.pools.generations.get_mut(&id) {
                generation.make.unfit = Some(reason.clone());
            }
        }
        // Most pools use a zygote by default.
        let level = match is_preliminary {
            true => log::Level::Debug,
            false => log::Level::Info,
        };
        log::log!(
            level,
            "PHP can't be started once for all pools: {reason}; each pool gets its own preloader"
        );
        members.give_up()
    }

    /// A zygote failed to start: its pools get other preloaders. Returns `false` if it is no zygote.
    pub(super) fn zygote_failed(&mut self, context: &mut Context, pid: i32, report: &Report) -> bool {
        let preloader = self.by_pid.get(&pid);
        if preloader.is_none_or(|it| it.members.is_ending()) {
            return false;
        }
        let is_preliminary = self.next_start(context, report) != NextStart::Nothing;
        let Some(released) = self.give_up_zygote(context, pid, summary(report), is_preliminary) else {
            return false;
        };
        self.gone(context, pid, exit_of_report(report));
        self.replace_zygote(context, released);
        true
    }

    fn replace_zygote(&mut self, context: &mut Context, released: Released) {
        for id in released.leaving {
            self.detach(context, id, Ended::Code(0));
        }
        for id in released.kept {
            self.start(context, id);
        }
    }

    pub(super) fn zygote_unfit(&mut self, context: &mut Context, pid: i32, reason: &str) {
        let Some(released) = self.give_up_zygote(context, pid, reason, false) else {
            return;
        };
        let Some(preloader) = self.by_pid.get(&pid) else {
            return;
        };
        preloader.close();
        if let Some(token) = preloader.start {
            // For the kit only; it is reaped like any process.
            context.spawner.is_up(token);
        }
        self.replace_zygote(context, released);
    }

    /// After a reload, pools only join a zygote that would be made the same again; pools that have another keep it.
    /// `is_new`: no present zygote may be joined.
    pub(crate) fn outdate_zygotes(&mut self, services: &Services, is_new: bool) {
        for preloader in self.by_pid.values_mut().filter(|it| it.is_zygote()) {
            if is_new || !is_as_made(services, preloader) {
                preloader.members.outdate();
            }
        }
        self.zygotes_to_check = true;
        self.zygotes_to_start = true;
    }

    /// Starts the zygotes that several pools use, so that the first request does not wait for PHP. One for a single
    /// pool comes with its workers.
    pub(crate) fn start_zygotes(&mut self, context: &mut Context) {
        if !std::mem::take(&mut self.zygotes_to_start) {
            return;
        }
        let pools = &context.pools;
        let latest = pools.by_id.values();
        let latest = latest.filter_map(|pool| pools.generations.get(&pool.latest.or(pool.serving)?));
        let kinds = latest.filter_map(|it| Some((it.common()?, it.has_applications())));
        for common in shared_sources(kinds, MOST_STARTED_AT_ONCE) {
            self.start_zygote(context, common);
        }
    }

    /// Starts one zygote that several pools can use before the first configuration's pools are opened: that takes as
    /// long as PHP's start.
    pub(crate) fn start_first_zygote(&mut self, context: &mut Context, config: &Config) {
        let is_root = identity::is_root();
        let is_users =
            |pool: &Pool| !is_root || pool.account.user.as_deref().is_some_and(|user| user != "root");
        let pools = config.pools.iter().filter(|pool| sharing::wants_zygote(pool));
        let pools = pools.filter(|pool| pool.applications.is_some() || is_users(pool));
        let services = &context.services;
        let kinds = pools.map(|pool| {
            let settings = services.bare_settings(pool.clone(), &config.global);
            (common(&settings), pool.applications.is_some())
        });
        for common in shared_sources(kinds, 1) {
            self.start_zygote(context, common);
        }
    }

    fn start_zygote(&mut self, context: &mut Context, common: Settings) {
        if self.choose(context.in_force.count, &common) != Choice::StartZygote {
            return;
        }
        if let Err(error) = self.try_start_zygote(context, common) {
            log::error!("can't start a zygote: {error}");
        }
    }

    pub(crate) fn end_unused_zygotes(&mut self, context: &mut Context) {
        if !std::mem::take(&mut self.zygotes_to_check) {
            return;
        }
        for zygote in self.by_pid.values_mut().filter(|it| it.members.is_unused()) {
            let generations = context.pools.generations.values();
            let serves = |common| zygote.members.serves(&common);
            let served = generations.filter(|it| it.common().is_some_and(serves));
            if is_needed(served.map(|it| (it.pool, it.has_applications()))) {
                continue;
            }
            log::debug!("zygote {} ends: no pools are like it", zygote.pid);
            zygote.members.end();
            match zygote.start {
                Some(token) => context.spawner.cancel(token),
                None => zygote.close(),
            }
        }
    }

    pub(crate) fn end_zygotes(&mut self) {
        let zygotes = self.by_pid.values().filter(|it| it.is_zygote());
        for pid in zygotes.map(|it| it.pid) {
            let _ = process::send_signal(pid, Signal::SIGKILL);
            process::reap_soon(pid, END);
        }
    }
}

fn is_as_made(services: &Services, zygote: &Preloader) -> bool {
    // Facts of a starting process are incomplete.
    let (Some(common), Some(facts)) = (zygote.members.sources(), &zygote.facts) else {
        return false;
    };
    let mut fingerprints = FingerprintCache::default();
    let origin = services.origin(&common.pool);
    let origin = origin.map(|origin| fingerprints.origin(&origin));
    let mut extensions = facts.extensions.iter();
    origin == zygote.origin && extensions.all(|(path, then)| fingerprints.path(path) == *then)
}

pub(super) fn parcel(
    pools: &Pools,
    id: GenerationId,
    memory: Option<OwnedFd>,
) -> Result<(Parcel, Vec<OwnedFd>), Error> {
    let (settings, generation) = pools.context(id)?.take_apart();
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

/// The parcel for a zygote with this template.
pub(super) fn parcel_of(
    pools: &mut Pools,
    id: GenerationId,
    template: Option<&Template>,
) -> Result<(Parcel, Vec<OwnedFd>), Error> {
    let memory = template.map(|template| memory(pools, id, template));
    parcel(pools, id, memory.transpose()?)
}

fn memory(pools: &mut Pools, id: GenerationId, template: &Template) -> Result<OwnedFd, Error> {
    let resources = pools.resources_mut(id).ok_or_else(closed)?;
    let memory = match &resources.memory {
        Some(memory) => memory,
        None => resources.memory.insert(template.fill(MEMORY)?),
    };
    copy(memory)
}
