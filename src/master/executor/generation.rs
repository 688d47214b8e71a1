//! One generation, as the executor knows it: scoreboard, pipes, preloader.

use super::make::Make;
use super::output::Lines;
use super::reports::Reports;
use crate::config::ProcessManager;
use crate::logs::{Handout, LogError, open_file};
use crate::master::action::Notify;
use crate::master::event::{PoolId, WorkerId};
use crate::runtime::http::Share;
use crate::scoreboard::layout::header as word;
use crate::scoreboard::{Board, header};
use crate::sys::fd::{pipe, socket_pair};
use crate::sys::{Error, clock};
use crate::worker::{Kit, Settings};
use nix::sys::socket::SockType;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// A generation as it was configured; its resources come when it first needs a process.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) pool: PoolId,
    pub(super) settings: Settings,
    pub(super) resources: Option<Resources>,
    /// What was published before there was a scoreboard to publish it in.
    pub(super) notify: Notify,
    /// Who sits in which slot.
    pub(super) seats: HashMap<u32, WorkerId>,
    /// What it was made from.
    pub(super) make: Make,
    /// Its access log, open.
    access: Option<OwnedFd>,
    /// Where slow requests are written down.
    pub(super) slow_log: Option<File>,
    /// Where what its processes write goes, in place of the daemon's log.
    pub(super) app_log: Option<File>,
    /// Where its workers find the processes of its program.
    pub(super) share: Option<Share>,
}

/// What exists only for a generation that has, or had, a process.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) board: Board,
    pub(super) child_accept: (OwnedFd, OwnedFd),
    pub(super) messages: Lines,
    pub(super) messages_in: OwnedFd,
    /// What its workers tell of starts that failed, where they start something.
    pub(super) reports: Option<Reports>,
    /// The pid of the process that makes its workers.
    pub(super) preloader: Option<i32>,
    /// The pid of the second preloader, once it is known.
    pub(super) second: Option<i32>,
    /// How many preloaders in a row were made from workers.
    pub(super) promotions: usize,
    /// Where workers find the access log.
    pub(super) access: Option<Handout>,
}

impl Resources {
    /// What a next master needs, in the order of `estate::names::of_generation`.
    pub(super) fn descriptors(&self) -> Vec<&OwnedFd> {
        let mut all = vec![
            &self.board.memory().writable,
            &self.child_accept.0,
            &self.child_accept.1,
            self.messages.pipe(),
            &self.messages_in,
        ];
        all.extend(self.access.iter().flat_map(Handout::ends));
        all
    }
}

impl Generation {
    /// A generation without resources.
    pub(super) fn new(pool: PoolId, settings: Settings, access: Option<OwnedFd>) -> Generation {
        Generation {
            pool,
            settings,
            resources: None,
            notify: Notify::default(),
            seats: HashMap::new(),
            make: Make::default(),
            access,
            slow_log: None,
            app_log: None,
            share: None,
        }
    }

    /// The table of a program of so many processes.
    pub(super) fn share(&mut self, instances: usize) -> Result<Share, Error> {
        if let Some(share) = &self.share {
            return Ok(share.clone());
        }
        let name = format!("forkyard program {}", self.settings.pool.name);
        let share = Share::create(&name, instances, self.settings.slots as usize)?;
        Ok(self.share.insert(share).clone())
    }

    /// Whether its workers are ordered. What they are made of ends with this master.
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self.settings.pool.pm, ProcessManager::Ordered { .. })
    }

    /// Brings the scoreboard and the pipes into being.
    pub(super) fn open(&mut self) -> Result<(), Error> {
        if self.resources.is_some() {
            return Ok(());
        }
        let name = format!("forkyard {}", self.settings.pool.name);
        let board = Board::create(&name, self.settings.slots as usize)?;
        let child_accept = pipe(true)?;
        // A socket pair keeps messages of several workers apart and never blocks them.
        let (messages, messages_in) = socket_pair(SockType::Stream)?;
        let messages = Lines::new(messages);
        self.resources = Some(Resources {
            board,
            child_accept,
            messages,
            messages_in,
            reports: Reports::new(&self.settings.pool.application)?,
            preloader: None,
            second: None,
            promotions: 0,
            access: self.access.as_ref().map(Handout::new).transpose()?,
        });
        self.set_notify(self.notify);
        Ok(())
    }

    /// Opens the access log anew, after it was moved away: the workers write to the new one from their next line on.
    /// Says whether there is an access log.
    pub(super) fn reopen_access_log(&mut self) -> Result<bool, LogError> {
        let Some(settings) = &self.settings.pool.access else {
            return Ok(false);
        };
        let file = open_file(&settings.path)?;
        self.take_access_log(file)?;
        Ok(true)
    }

    /// Goes on with another file as its access log, if it has one.
    pub(super) fn take_access_log(&mut self, file: OwnedFd) -> Result<(), LogError> {
        let Some(settings) = &self.settings.pool.access else {
            return Ok(());
        };
        if let Some(resources) = &self.resources {
            if let Some(handout) = &resources.access {
                let failed = |error: Error| LogError::new(&settings.path, error.errno.into());
                handout.replace(&file).map_err(failed)?;
                header::add_logs_opened(resources.board.header());
            }
        }
        self.access = Some(file);
        Ok(())
    }

    /// Publishes when workers have to tell.
    pub(super) fn set_notify(&mut self, notify: Notify) {
        self.notify = notify;
        if let Some(resources) = &self.resources {
            let value = header::Notify {
                always: notify.always,
                idle_below: notify.idle_below,
            };
            header::set_notify(resources.board.header(), value);
        }
    }

    /// What a new process of this generation gets: copies of the descriptors.
    pub(super) fn kit(&self, listener: &OwnedFd, queue: &(OwnedFd, OwnedFd)) -> Result<Kit, Error> {
        let Some(resources) = &self.resources else {
            return Err(Error::new(
                "kit",
                self.settings.pool.name.as_str(),
                nix::errno::Errno::EINVAL,
            ));
        };
        let copy = |fd: &OwnedFd| {
            fd.as_fd()
                .try_clone_to_owned()
                .map_err(|e| Error::from_io("dup", "", &e))
        };
        let memory = resources.board.memory();
        Ok(Kit {
            settings: self.settings.clone(),
            listener: copy(listener)?,
            queue_out: copy(&queue.0)?,
            queue_in: copy(&queue.1)?,
            child_accept: copy(&resources.child_accept.1)?,
            messages: copy(&resources.messages_in)?,
            board_writable: copy(&memory.writable)?,
            board_readable: copy(&memory.readable)?,
            access: resources
                .access
                .as_ref()
                .map(|handout| copy(handout.shelf()))
                .transpose()?,
        })
    }

    /// Gives a slot to a worker that is about to be made.
    pub(super) fn seat(&mut self, slot: u32, worker: WorkerId) {
        if let Some(resources) = &self.resources {
            resources.board.wipe(slot as usize);
            header::set_retire(resources.board.header(), slot as usize, false);
            header::set_used(resources.board.header(), slot as usize, true);
        }
        self.seats.insert(slot, worker);
    }

    /// Takes a slot back. What its worker counted is added to the generation's past.
    pub(super) fn unseat(&mut self, slot: u32) {
        self.seats.remove(&slot);
        if let Some(share) = &self.share {
            share.table().release_slot(slot as usize);
        }
        let Some(resources) = &self.resources else { return };
        let (words, index) = (resources.board.header(), slot as usize);
        if let Some(page) = resources.board.slot(index) {
            let entry = crate::scoreboard::census::read(page);
            header::add(words, word::PAST_REQUESTS, entry.requests);
            let accepts = crate::scoreboard::census::word(page, crate::scoreboard::layout::slot::ACCEPTS);
            header::add(words, word::PAST_ACCEPTS, accepts);
            header::raise(
                words,
                word::PAST_MAX_ACTIVE,
                entry.max_active.min(u64::from(self.settings.slots)),
            );
            header::raise(words, word::PAST_MAX_QUEUE, entry.max_queue);
            header::raise(words, word::PAST_MAX_MEMORY, entry.max_memory);
        }
        header::set_used(words, index, false);
        header::set_retire(words, index, false);
    }

    /// Seconds since 1970, now: when a generation begins.
    pub(super) fn started_now() -> u64 {
        clock::epoch_seconds()
    }
}
