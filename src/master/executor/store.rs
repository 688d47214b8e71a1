//! Leaves descriptors, and the document that explains them, with the service manager, so that a master that is killed can
//! be followed by another.

use super::{Executor, Handover, Helpers, Pools, Reload, WorkerProcess};
use crate::estate::document::{Document, Stopping};
use crate::estate::{frame, names};
use crate::master::action::{Action, Fact};
use crate::master::event::{GenerationId, PoolId, WorkerId};
use crate::master::manager::Manager;
use crate::sys::notify::Notifier;
use crate::sys::{Error, clock, memfile};
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The byte that tells a worker to finish: the channel's end is not seen while a copy of it is kept.
const FINISH: &[u8] = b"f";

/// What is left with the service manager.
#[derive(Debug)]
pub(in crate::master) struct Store {
    notifier: Notifier,
    copies: [OwnedFd; 2],
    next: usize,
    /// The document says what is no longer so.
    pub(super) is_stale: bool,
    has_failed: bool,
}

impl Store {
    /// A store with two empty copies.
    pub(in crate::master) fn new(notifier: Notifier) -> Result<Store, Error> {
        Ok(Store {
            notifier,
            copies: [
                memfile::create(names::COPIES[0])?,
                memfile::create(names::COPIES[1])?,
            ],
            next: 0,
            is_stale: true,
            has_failed: false,
        })
    }

    /// Leaves the copies, each in place of the one before it, and never without one that is whole.
    fn leave_copies(&mut self, document: &Document) {
        for _ in names::COPIES {
            self.write(document);
        }
        for (index, name) in names::COPIES.iter().enumerate() {
            self.forget(name);
            let fd = self.copies[index].as_fd().try_clone_to_owned();
            if let Ok(fd) = fd {
                self.keep(name, fd.as_fd());
            }
        }
    }

    /// Writes the document over the older copy.
    fn write(&mut self, document: &Document) {
        // The clock is as good as a count, and goes on from one master to the next.
        let bytes = frame::encode(clock::now().as_nanos(), &document.encode());
        if let Err(error) = memfile::write(self.copies[self.next].as_fd(), &bytes) {
            self.complain(&error);
        }
        self.next = 1 - self.next;
        self.is_stale = false;
    }

    fn keep(&mut self, name: &str, fd: BorrowedFd<'_>) {
        if let Err(error) = self.notifier.keep(name, fd) {
            self.complain(&error);
        }
    }

    fn forget(&mut self, name: &str) {
        if let Err(error) = self.notifier.forget(name) {
            self.complain(&error);
        }
    }

    /// Says once that another master would not find everything.
    fn complain(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            log::warn!("what is left for a next master is not complete: {error}");
        }
    }
}

impl Executor {
    /// Begins to leave everything with a service manager. `stored`: what that has already.
    pub(in crate::master) fn open_store(&mut self, notifier: Notifier, stored: &[String], manager: &Manager) {
        let mut store = match Store::new(notifier) {
            Ok(store) => store,
            Err(error) => return log::error!("nothing is left for a next master: {error}"),
        };
        store.leave_copies(&self.document(manager, None));
        let ours: HashSet<String> = self.descriptors().into_iter().map(|(name, _)| name).collect();
        for name in stored {
            let is_copy = names::COPIES.contains(&name.as_str()) || name == names::CONFIG;
            if !is_copy && !ours.contains(name) {
                store.forget(name);
            }
        }
        self.handover.store = Some(store);
    }

    /// Brings the document up to date, if anything has changed.
    pub(in crate::master) fn save(&mut self, manager: &Manager, stopping: Option<Stopping>) {
        if self.handover.store.as_ref().is_none_or(|store| !store.is_stale) {
            return;
        }
        let document = self.document(manager, stopping);
        if let Some(store) = &mut self.handover.store {
            store.write(&document);
        }
    }

    /// Takes everything back: the daemon has ended as it was asked to, and nothing is to go on.
    pub(in crate::master) fn clear_store(&mut self) {
        let ours: Vec<String> = self.descriptors().into_iter().map(|(name, _)| name).collect();
        self.handover
            .unkeep(ours.into_iter().chain(names::COPIES.map(str::to_owned)));
        self.handover.unkeep([names::CONFIG.to_owned()]);
    }
}

impl Handover {
    /// Notes that the document has to be written anew.
    pub(super) fn note_change(&mut self, action: &Action) {
        let Some(store) = &mut self.store else {
            return;
        };
        store.is_stale |= match action {
            Action::Fork(..)
            | Action::Retire(_)
            | Action::Kill(..)
            | Action::TimeUp(_)
            | Action::DropGeneration(_)
            | Action::ClosePool(_)
            | Action::Note(Fact::Serves(_) | Fact::Gone(_)) => true,
            Action::Watch(_)
            | Action::Unwatch(_)
            | Action::SetNotify(..)
            | Action::Fill(..)
            | Action::Fail(_)
            | Action::TakeCensus(_)
            | Action::StartPreloader(_)
            | Action::StopPreloader(..)
            | Action::StandIn(..)
            | Action::StandDown(_)
            | Action::Promote(..)
            | Action::Succeed(_)
            | Action::StopSecond(..)
            | Action::Nudge(_)
            | Action::Publish(..)
            | Action::Trace(_)
            | Action::Renew
            | Action::Note(Fact::Fails(_))
            | Action::Say(_)
            | Action::Exit(_) => false,
        };
    }

    pub(super) fn keep_pool(&mut self, pools: &Pools, id: PoolId) {
        let (Some(store), Some(pool)) = (&mut self.store, pools.by_id.get(&id)) else {
            return;
        };
        store.is_stale = true;
        let Some(listener) = &pool.listener else { return };
        match &pool.queue {
            None => store.keep(&names::listener(id.0), listener.socket.as_fd()),
            Some((out, into)) => {
                let [out_name, in_name] = names::queue(id.0);
                store.keep(&out_name, out.as_fd());
                store.keep(&in_name, into.as_fd());
            }
        }
    }

    pub(super) fn keep_status(&mut self, helpers: &Helpers, id: PoolId) {
        if let (Some(store), Some(reporter)) = (&mut self.store, helpers.reporters.get(&id)) {
            store.keep(&names::status(id.0), reporter.listener.socket.as_fd());
        }
    }

    pub(super) fn keep_generation(&mut self, pools: &Pools, id: GenerationId) {
        let generation = pools.generations.get(&id).filter(|it| !it.is_ordered());
        let resources = generation.and_then(|it| it.resources.as_ref());
        let (Some(store), Some(resources)) = (&mut self.store, resources) else {
            return;
        };
        store.is_stale = true;
        for (name, fd) in names::of_generation(id.0).iter().zip(resources.descriptors()) {
            store.keep(name, fd.as_fd());
        }
        if let Some(reports) = &resources.reports {
            let (out, into) = reports.ends();
            for (name, fd) in names::reports(id.0).iter().zip([out, into]) {
                store.keep(name, fd.as_fd());
            }
        }
    }

    pub(super) fn keep_program_table(&mut self, pools: &Pools, id: GenerationId) {
        let share = pools.generations.get(&id).and_then(|it| it.share.as_ref());
        if let (Some(store), Some(share)) = (&mut self.store, share) {
            store.is_stale = true;
            store.keep(&names::program_table(id.0), share.memory().as_fd());
        }
    }

    pub(super) fn keep_worker(&mut self, pools: &Pools, id: WorkerId) {
        let worker = pools.workers.get(&id).filter(|worker| worker.channel.is_none());
        let (Some(store), Some(worker)) = (&mut self.store, worker) else {
            return;
        };
        let outputs = worker.output.iter().map(|(lines, _)| lines.pipe());
        let descriptors = worker.retire.iter().chain(outputs);
        let names = names::of_worker(id.0, !worker.output.is_empty());
        for (name, fd) in names.iter().zip(descriptors) {
            store.keep(name, fd.as_fd());
        }
    }

    pub(super) fn keep_config(&mut self, reload: &Reload) {
        let Some(store) = &mut self.store else {
            return;
        };
        // Serialising plain values to memory can't fail.
        let body = serde_json::to_vec(&reload.config).unwrap_or_default();
        match memfile::sealed(names::CONFIG, &frame::encode(0, &body)) {
            Ok(file) => {
                store.forget(names::CONFIG);
                store.keep(names::CONFIG, file.as_fd());
            }
            Err(error) => store.complain(&error),
        }
    }

    pub(super) fn unkeep(&mut self, names: impl IntoIterator<Item = String>) {
        let Some(store) = &mut self.store else {
            return;
        };
        store.is_stale = true;
        for name in names {
            store.forget(&name);
        }
    }

    /// A worker is gone: its channels, unless they were taken back before.
    pub(super) fn unkeep_worker(&mut self, id: WorkerId, worker: &WorkerProcess) {
        if worker.channel.is_some() {
            return;
        }
        let mut names = names::of_worker(id.0, !worker.output.is_empty());
        if worker.retire.is_none() {
            names.remove(0);
        }
        self.unkeep(names);
    }
}

impl Pools {
    /// Tells a worker to finish, for good.
    pub(super) fn close_retire(&mut self, handover: &mut Handover, id: WorkerId) {
        let Some(retire) = self.workers.get_mut(&id).and_then(|worker| worker.retire.take()) else {
            return;
        };
        let is_kept = self
            .workers
            .get(&id)
            .is_some_and(|worker| worker.channel.is_none());
        if handover.store.is_some() && is_kept {
            // A worker that is gone needs no telling.
            let _ = nix::unistd::write(&retire, FINISH);
            handover.unkeep([names::retire(id.0)]);
        }
    }
}
