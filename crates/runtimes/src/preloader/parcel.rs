//! A generation's data that a zygote passes on unread, because a process that other pools' workers are copied from must
//! not keep data of a pool.

use super::Error;
use crate::php::protocol;
use forkyard_host::confine;
use forkyard_host::logs::Log;
use forkyard_sys::{self as sys, memfile};
use forkyard_worker::{ContextError, GenerationContext};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

const MOST_BYTES: usize = 4 << 20;

/// Descriptors from which the new process creates its context.
#[derive(Debug)]
pub struct Parcel {
    settings: OwnedFd,
    memory: Option<OwnedFd>,
    context: Vec<OwnedFd>,
}

impl Parcel {
    pub(super) fn split_off(
        said: protocol::Parcel,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<Parcel, ContextError> {
        let wanted = 1 + usize::from(said.has_memory) + said.context;
        if descriptors.len() < wanted {
            return Err(ContextError::Descriptors(descriptors.len(), wanted));
        }
        let mut own = descriptors.drain(..wanted);
        let settings = own.next().ok_or(ContextError::Descriptors(0, wanted))?;
        let memory = if said.has_memory { own.next() } else { None };
        Ok(Parcel {
            settings,
            memory,
            context: own.collect(),
        })
    }

    /// The pool's own memory.
    pub fn take_memory(&mut self) -> Option<OwnedFd> {
        self.memory.take()
    }

    /// All descriptors.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let first = std::iter::once(&self.settings);
        let all = first.chain(&self.memory).chain(&self.context);
        all.map(AsRawFd::as_raw_fd).collect()
    }

    /// Reads the settings in the new process, enters the pool's control group and sends log lines to the generation's
    /// channel.
    ///
    /// # Errors
    /// Invalid settings or descriptors, or the group can't be entered.
    pub fn open(self) -> Result<GenerationContext, Error> {
        let json = memfile::read(self.settings.as_fd(), MOST_BYTES)?;
        let settings = serde_json::from_slice(&json).map_err(Error::Line)?;
        let context = GenerationContext::assemble(settings, self.context).map_err(Error::Context)?;
        Log::install().turn_to_master(sys::fd::copy(&context.messages)?);
        // Enter the group first, so that it contains everything the pool does.
        if let Some(group) = &context.group {
            let entered = confine::enter_group(group.as_fd());
            entered.map_err(|error| Error::ProcessSettings(error.into()))?;
        }
        Ok(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_sys::fd::null;

    #[test]
    fn it_takes_its_own_descriptors_and_leaves_the_seats() {
        for has_memory in [false, true] {
            let said = protocol::Parcel {
                has_memory,
                context: 2,
            };
            let mut all: Vec<OwnedFd> = (0..6).map(|_| null().unwrap()).collect();
            let parcel = Parcel::split_off(said, &mut all).unwrap();
            assert_eq!(parcel.memory.is_some(), has_memory);
            assert_eq!(parcel.context.len(), 2);
            assert_eq!(all.len(), 3 - usize::from(has_memory));
            let mut few = vec![null().unwrap()];
            assert!(Parcel::split_off(said, &mut few).is_err());
        }
    }
}
