//! Has a process of a pool read the state of its caches. The pool's preloader or zygote forks that process, as it forks
//! workers, so the caches are the workers' own.

use super::Preloaders;
use super::preloader::Command;
use super::zygotes::parcel;
use crate::context::Context;
use forkyard_core::master::event::GenerationId;
use forkyard_sys::Error;
use forkyard_sys::fd::{copy, pipe};
use std::os::fd::OwnedFd;

/// Why the state of a pool's caches can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CantRead {
    #[error("PHP is not running for this pool; its first request starts it")]
    NotRunning,
    #[error("PHP is starting")]
    Starting,
    #[error("no worker has run yet, so the caches are empty")]
    Unused,
    #[error("the preloader does not read its orders")]
    Busy,
    #[error("the process that reads the caches can't be ordered: {0}")]
    System(#[from] Error),
}

impl Preloaders {
    /// Orders the state of a generation's caches, and returns the pipe that a process writes it to.
    ///
    /// # Errors
    /// There is no process that could be forked, or nothing to read.
    pub(crate) fn order_cache_state(
        &mut self,
        context: &mut Context,
        id: GenerationId,
    ) -> Result<OwnedFd, CantRead> {
        let preloader = self.preloader_of(&context.pools, id);
        let preloader = preloader.ok_or(CantRead::NotRunning)?;
        if !preloader.is_ready() {
            return Err(CantRead::Starting);
        }
        if preloader.has_unsent() {
            return Err(CantRead::Busy);
        }
        let (state, to) = pipe(false)?;
        let (mut own, mut descriptors) = (None, Vec::new());
        if preloader.is_zygote() {
            let memory = match (&preloader.template, context.pools.resources(id)) {
                (None, _) => None,
                (Some(_), Some(resources)) => Some(copy(resources.memory.as_ref().ok_or(CantRead::Unused)?)?),
                (Some(_), None) => return Err(CantRead::Unused),
            };
            // A pool at rest gets its pipes for this order only.
            let rests = context
                .pools
                .generations
                .get(&id)
                .is_some_and(|it| it.pipes().is_none());
            if rests {
                context.open(id)?;
                context.pools.vacated.insert(id);
            }
            let (parcel, parts) = parcel(&context.pools, id, memory)?;
            (own, descriptors) = (Some(parcel), parts);
        }
        descriptors.push(to);
        let command = Command::CacheState { parcel: own };
        preloader.send(&command, descriptors);
        Ok(state)
    }
}
