//! Warm-up: compiles the scripts that a pool's old workers ran most before its new workers serve.
//!
//! The old workers' parent writes the paths into a pipe, and the new workers' parent reads them. If one is a zygote, it
//! forks a process for this as the pool's user. The master waits until a second pipe closes or the time is over.

use super::Preloaders;
use super::preloader::Command;
use super::zygotes::{parcel, parcel_of};
use crate::context::Context;
use crate::context::generation::Generation;
use crate::context::make::Facts;
use crate::context::pools::Pools;
use crate::context::services::Services;
use crate::context::sources::Source;
use forkyard_base::tick::Tick;
use forkyard_config::Php;
use forkyard_core::master::event::{Event, GenerationId};
use forkyard_runtimes::php::protocol::WARM_TIMEOUT;
use forkyard_sys::fd::{copy, pipe};
use forkyard_sys::{Error, clock};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The least memory of a zygote pool that is worth three processes, bytes. That much compiles in some 5 ms; a pool with
/// one small script has 68 KiB.
const WORTH_BYTES: u64 = 256 << 10;
/// The additional time beyond a warm-up's own limits.
const SLACK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct WarmUp {
    /// It closes when everything is compiled.
    done: OwnedFd,
    /// The generation then serves in any case: a pool's user can stop the process that compiles.
    pub(super) until: Tick,
}

impl Preloaders {
    /// The warm-up is done or late: the generation may have workers.
    pub(crate) fn warmed_up(&mut self, services: &mut Services, id: GenerationId) {
        if self.end_warm_up(services, id) {
            services.tell(Event::PreloaderReady(id));
        }
    }

    pub(crate) fn poll(&mut self, services: &mut Services, now: Tick) {
        let warm_ups = self.warm_ups.iter();
        let late = warm_ups.filter(|(_, warm_up)| warm_up.until <= now);
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.warmed_up(services, id);
        }
    }

    pub(super) fn ask_for_scripts(&mut self, pools: &Pools, id: GenerationId) -> Option<OwnedFd> {
        let generation = pools.generations.get(&id)?;
        let most = php(generation).map_or(0, |php| php.warm_up);
        let serving = pools.by_id.get(&generation.pool)?.serving;
        let old = serving.filter(|old| *old != id && most > 0)?;
        // A process must not open files because another user ran them.
        let settings = &generation.settings;
        pools.generations.get(&old).filter(|old| {
            php(old).is_some()
                && old.settings.identity == settings.identity
                && old.settings.pool.setup.chroot == settings.pool.setup.chroot
        })?;
        let asked = self.try_ask_for_scripts(pools, old, most);
        asked
            .map_err(|error| log::error!("[pool {}] warm-up: {error}", pools.generation_name(id)))
            .unwrap_or_default()
    }

    fn try_ask_for_scripts(
        &mut self,
        pools: &Pools,
        old: GenerationId,
        most: u32,
    ) -> Result<Option<OwnedFd>, Error> {
        let preloader = self.preloader_of(pools, old);
        let Some(preloader) = preloader.filter(|old| old.is_ready()) else {
            return Ok(None);
        };
        let (mut own, mut descriptors) = (None, Vec::new());
        if preloader.is_zygote() {
            // Without memory it had no worker of this zygote.
            let Some(memory) = pools.resources(old).and_then(|it| it.memory.as_ref()) else {
                return Ok(None);
            };
            if allocated(memory) < WORTH_BYTES {
                return Ok(None);
            }
            let (parcel, parts) = parcel(pools, old, Some(copy(memory)?))?;
            (own, descriptors) = (Some(parcel), parts);
        }
        let (names, to) = pipe(false)?;
        descriptors.push(to);
        let command = Command::Scripts { most, parcel: own };
        preloader.send(&command, descriptors);
        Ok(Some(names))
    }

    /// A generation's zygote is ready: starts the warm-up, or reports the generation ready.
    pub(super) fn zygote_serves(&mut self, context: &mut Context, id: GenerationId, facts: Facts) {
        context.note_facts(id, facts);
        let begun = self.warm_up(context, id).unwrap_or_else(|error| {
            log::error!("[pool {}] warm-up: {error}", context.pools.generation_name(id));
            false
        });
        if !begun {
            context.services.tell(Event::PreloaderReady(id));
        }
    }

    /// Returns `false` if there is nothing to compile.
    fn warm_up(&mut self, context: &mut Context, id: GenerationId) -> Result<bool, Error> {
        let pools = &mut context.pools;
        let Some(names) = self.ask_for_scripts(pools, id) else {
            return Ok(false);
        };
        let generation = pools.generations.get(&id).and_then(php);
        let time = generation.map_or(Duration::ZERO, |php| php.warm_up_time);
        let Some(zygote) = self.preloader_of(pools, id) else {
            return Ok(false);
        };
        let (parcel, mut descriptors) = parcel_of(pools, id, zygote.template.as_ref())?;
        let (done, until_done) = pipe(false)?;
        context.services.sources.watch(&done, Source::WarmUp(id))?;
        descriptors.extend([until_done, names]);
        let command = Command::Warm { parcel: Some(parcel) };
        zygote.send(&command, descriptors);
        let until = clock::now() + WARM_TIMEOUT + time + SLACK;
        self.warm_ups.insert(id, WarmUp { done, until });
        Ok(true)
    }

    /// Ends a warm-up. Returns `false` if there is none.
    pub(super) fn end_warm_up(&mut self, services: &mut Services, id: GenerationId) -> bool {
        let Some(warm_up) = self.warm_ups.remove(&id) else {
            return false;
        };
        services.sources.forget(&warm_up.done.as_fd());
        true
    }
}

/// The allocated size of a memory file, bytes.
fn allocated(file: &OwnedFd) -> u64 {
    let status = nix::sys::stat::fstat(file);
    status.map_or(0, |status| u64::try_from(status.st_blocks).unwrap_or(0) * 512)
}

fn php(generation: &Generation) -> Option<&Php> {
    generation.settings.pool.application.php()
}
