//! Stores descriptors and the document with the service manager, so that another master can follow a killed one.

use super::handover::{Handover, Stale};
use super::pools::Pools;
use crate::context::InForce;
use forkyard_config::{self as config, Config};
use forkyard_core::master::event::WorkerId;
use forkyard_protocol::counters::PoolCounters;
use forkyard_protocol::handover::document::Document;
use forkyard_protocol::handover::{frame, names};
use forkyard_sys::notify::Notifier;
use forkyard_sys::{Error, clock, memfile};
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Tells a worker to finish: it does not see the end of the channel while the service manager keeps a copy.
const FINISH: &[u8] = b"f";
/// The changes that may follow a short document before it is written again; a long one may have as many bytes of
/// changes as its own size.
const ROOM_FOR_CHANGES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct FdStore {
    notifier: Notifier,
    copies: [OwnedFd; 2],
    /// The copy that was written last.
    current: usize,
    /// The length of the document in it.
    whole: usize,
    /// Where the changes after the document end.
    end: usize,
    sequence: u64,
    pub(crate) stale: Stale,
    told_of_room: Option<u64>,
    has_failed: bool,
}

impl FdStore {
    pub(crate) fn new(notifier: Notifier) -> Result<FdStore, Error> {
        Ok(FdStore {
            notifier,
            copies: [
                memfile::create(names::COPIES[0])?,
                memfile::create(names::COPIES[1])?,
            ],
            current: 0,
            whole: 0,
            end: 0,
            sequence: 0,
            stale: Stale::default(),
            told_of_room: None,
            has_failed: false,
        })
    }

    /// Stores both copies, each in place of an old one, and never without a complete copy.
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
        let bytes = self.frame(&document.encode());
        self.current = 1 - self.current;
        (self.whole, self.end) = (bytes.len(), 0);
        self.append(&bytes);
    }

    fn write_behind(&mut self, changes: &[u8]) -> bool {
        let most = self.whole + self.whole.max(ROOM_FOR_CHANGES);
        let has_room = self.end + changes.len() <= most;
        if has_room {
            let bytes = self.frame(changes);
            self.append(&bytes);
        }
        has_room
    }

    /// The clock serves as a counter that continues from one master to the next.
    fn frame(&mut self, body: &[u8]) -> Vec<u8> {
        self.sequence = clock::now().as_nanos().max(self.sequence + 1);
        frame::encode(self.sequence, body)
    }

    fn append(&mut self, bytes: &[u8]) {
        if let Err(error) = memfile::write_at(self.copies[self.current].as_fd(), bytes, self.end) {
            self.complain(&error);
        }
        self.end += bytes.len();
    }

    fn read(&self) -> Option<Document> {
        let read = |copy: &OwnedFd| memfile::read(copy.as_fd(), frame::MOST_BYTES).ok();
        let [first, second] = [read(&self.copies[0])?, read(&self.copies[1])?];
        Document::newest([&first, &second]).ok()
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

    /// Logs once that another master would not find everything.
    fn complain(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            log::warn!("the hand-over state is incomplete: {error}");
        }
    }
}

impl Handover {
    /// Stores the state with the service manager from now on. `ours`: the names of the descriptors in use; others of
    /// the `stored` ones are removed.
    pub(crate) fn begin_store(
        &mut self,
        notifier: Notifier,
        document: &Document,
        ours: &HashSet<String>,
        stored: &[String],
    ) {
        let mut store = match FdStore::new(notifier) {
            Ok(store) => store,
            Err(error) => return log::error!("nothing is left for a next master: {error}"),
        };
        store.leave_copies(document);
        for name in stored {
            let is_copy = names::COPIES.contains(&name.as_str()) || name == names::CONFIG;
            if !is_copy && !ours.contains(name) {
                store.forget(name);
            }
        }
        self.fd_store = Some(store);
    }

    pub(crate) fn take_stale(&mut self) -> Option<Stale> {
        let has_news = self.history.is_stale();
        let store = self.fd_store.as_mut();
        let store = store.filter(|it| has_news || !it.stale.is_empty())?;
        Some(Stale {
            history: self.history.take_changes(),
            ..std::mem::take(&mut store.stale)
        })
    }

    /// Appends changes to the document. Returns `false` if it has to be written again.
    pub(crate) fn append(&mut self, changes: &[u8]) -> bool {
        self.fd_store.as_mut().is_none_or(|it| it.write_behind(changes))
    }

    pub(crate) fn write(&mut self, document: &Document) {
        if let Some(store) = &mut self.fd_store {
            store.write(document);
        }
    }

    /// Checks that the stored document is the present state.
    pub(crate) fn compare(&self, in_force: &InForce, present: Document) {
        let Some(store) = self.fd_store.as_ref().filter(|it| !it.has_failed) else {
            return;
        };
        // Counters of applications' workers change during this comparison.
        let without_counters = |mut document: Document| {
            let is_counting = |name: &str| {
                let pool = in_force.pool(name);
                pool.is_none_or(|pool| pool.applications.is_some())
            };
            let counting = document.pools.iter_mut().filter(|pool| is_counting(&pool.name));
            counting.for_each(|pool| pool.counters = PoolCounters::default());
            document
        };
        assert_eq!(
            store.read().map(without_counters),
            Some(without_counters(present)),
            "the hand-over state"
        );
    }

    /// Warns that the service manager stores fewer descriptors than may be needed.
    pub(crate) fn measure_store(&mut self, config: &Config) {
        let Some(store) = &mut self.fd_store else {
            return;
        };
        let needed = config::descriptors(config).left;
        let most = store.notifier.most_descriptors().filter(|most| *most < needed);
        if let Some(most) = most.filter(|_| store.told_of_room.replace(needed) != Some(needed)) {
            log::warn!(
                "{most} descriptors can be left for a next master: {} pools need {needed} when each has a worker; raise \
                 FileDescriptorStoreMax= and FDSTORE in the unit",
                config.pools.len()
            );
        }
    }

    /// Stores descriptors. One that is stored twice would be passed on twice, as a socket that no pool wants.
    pub(crate) fn keep<'a>(&mut self, named: impl IntoIterator<Item = (String, &'a OwnedFd)>) {
        if let Some(store) = &mut self.fd_store {
            for (name, fd) in named {
                store.keep(&name, fd.as_fd());
            }
        }
    }

    pub(crate) fn keep_config(&mut self, in_force: &InForce) {
        let Some(store) = &mut self.fd_store else {
            return;
        };
        // Serialising plain values can't fail.
        let body = serde_json::to_vec(&in_force.config).unwrap_or_default();
        match memfile::sealed(names::CONFIG, &frame::encode(0, &body)) {
            Ok(file) => {
                store.forget(names::CONFIG);
                store.keep(names::CONFIG, file.as_fd());
            }
            Err(error) => store.complain(&error),
        }
    }

    pub(crate) fn unkeep(&mut self, names: impl IntoIterator<Item = String>) {
        let Some(store) = &mut self.fd_store else {
            return;
        };
        for name in names {
            store.forget(&name);
        }
    }
}

impl Pools {
    pub(crate) fn close_stop_pipe(&mut self, handover: &mut Handover, id: WorkerId) {
        let Some(worker) = self.workers.get_mut(&id) else {
            return;
        };
        let stop_pipe = worker.stop_pipe.take().filter(|_| worker.channel.is_none());
        if let (Some(stop_pipe), Some(_)) = (stop_pipe, &handover.fd_store) {
            // A dead worker needs no message.
            let _ = nix::unistd::write(&stop_pipe, FINISH);
            handover.unkeep([names::stop_pipe(id.0)]);
        }
    }
}
