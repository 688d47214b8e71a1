//! A generation's resources: scoreboard, pipes, preloader.

use super::handover::Named;
use super::make::Make;
use super::queues::Queues;
use super::sources::Source;
use crate::context::app_log::{AppLog, owner};
use crate::context::lines::Lines;
use crate::context::reports::Reports;
use forkyard_base::indexed::Keyed;
use forkyard_base::tick::Tick;
use forkyard_config::release::{Map, in_release};
use forkyard_config::{Application, Pool, ProcessManager};
use forkyard_core::master::action::WakeOnAccept;
use forkyard_core::master::event::{Choice, GenerationId, PoolId, WorkerId};
use forkyard_host::confine;
use forkyard_host::logs::{Handout, LogError, open_file};
use forkyard_protocol::handover::names::{self, QueueKind};
use forkyard_protocol::refusals::RefusalCause;
use forkyard_runtimes::http::Share;
use forkyard_scoreboard::header::Wish;
use forkyard_scoreboard::layout::{header as field, slot as slot_field};
use forkyard_scoreboard::turns::Turn;
use forkyard_scoreboard::{Board, header, refusals, slot_reader};
use forkyard_sys::fd::{copy, one_way, set_nonblocking, set_send_buffer, socket_pair};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::process::{Appender, appended_by_others};
use forkyard_sys::{Error, clock, identity};
use forkyard_worker::RestartMark;
use forkyard_worker::{GenerationContext, Settings, needs_entrance};
use nix::errno::Errno;
use nix::sys::socket::SockType;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A configured generation; its resources come with its first process.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) pool: PoolId,
    pub(crate) settings: Settings,
    /// Its start; `None`: before this master.
    pub(crate) began: Option<Tick>,
    pub(crate) resources: Option<Box<Resources>>,
    /// Kept here because there may be no scoreboard yet.
    pub(crate) notify: WakeOnAccept,
    /// Its part of the pool's requests; `None`: all. Kept here as `notify`.
    pub(crate) turn: Option<Turn>,
    pub(crate) slots: HashMap<u32, WorkerId>,
    pub(crate) make: Make,
    pub(crate) access: Option<OwnedFd>,
    pub(crate) slow_log: Option<Appender>,
    pub(crate) app_log: Option<AppLog>,
    /// Workers that ended by themselves and were not replaced yet.
    pub(crate) unreplaced: u32,
    /// The variables of its `env_file` at the last start.
    pub(crate) secrets: BTreeMap<String, String>,
    pub(crate) share: Option<Share>,
    /// The autopilot's number of workers; `None`: the number is the operator's.
    pub(crate) choice: Option<Choice>,
    /// The last such number in the log.
    pub(crate) logged_choice: Option<u32>,
}

/// The resources of a generation that has, or had, a process.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) board: Board,
    /// The pipes to its processes, if it has processes.
    pub(crate) pipes: Option<Pipes>,
    pub(crate) preloader: Option<i32>,
    /// The pid of the next mold (the next preloader), once it is known.
    pub(crate) next_mold: Option<i32>,
    /// The number of preloaders in a row that were made from workers.
    pub(crate) promotions: usize,
    /// The pool's own memory in place of the zygote's shared memory, such as OPcache's. It is bound to the zygote's
    /// addresses.
    pub(crate) memory: Option<OwnedFd>,
}

#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) accept_notify: (Guarded, OwnedFd),
    pub(crate) messages: Lines,
    pub(crate) messages_in: OwnedFd,
    pub(crate) reports: Option<Reports>,
    pub(crate) access: Option<Handout>,
}

/// The buffer of accept notifications, in bytes. The kernel grants an unprivileged daemon less.
const ACCEPT_NOTIFY_BYTES: usize = 4 << 20;

/// The pipe for workers' notifications, which never blocks them.
fn accept_notify() -> Result<(Guarded, OwnedFd), Error> {
    let (reader, writer) = one_way()?;
    set_nonblocking(writer.as_fd(), true)?;
    // The kernel accounts hundreds of bytes per message.
    set_send_buffer(writer.as_fd(), ACCEPT_NOTIFY_BYTES)?;
    Ok((reader, writer))
}

impl Pipes {
    fn open(application: &Application, access: Option<&OwnedFd>) -> Result<Pipes, Error> {
        // A socket pair separates messages of several workers and never blocks them.
        let (messages, messages_in) = socket_pair(SockType::Stream)?;
        Ok(Pipes {
            accept_notify: accept_notify()?,
            messages: Lines::new(Guarded::new(messages)),
            messages_in,
            reports: Reports::new(application)?,
            access: access.map(Handout::new).transpose()?,
        })
    }

    pub(crate) fn sources(&self, id: GenerationId) -> impl Iterator<Item = (&OwnedFd, Source)> {
        let reports = self.reports.as_ref();
        let reports = reports.map(|reports| (reports.ends().0, Source::Reports(id)));
        let notify = (&*self.accept_notify.0, Source::ChildAccept(id));
        let messages = (self.messages.pipe(), Source::Messages(id));
        [notify, messages].into_iter().chain(reports)
    }
}

impl Resources {
    pub(crate) fn new(board: Board, pipes: Option<Pipes>) -> Resources {
        Resources {
            board,
            pipes,
            preloader: None,
            next_mold: None,
            promotions: 0,
            memory: None,
        }
    }

    fn named(&self, id: u32) -> Vec<Named<'_>> {
        let mut all = vec![&self.board.memory().writable];
        if let Some(pipes) = &self.pipes {
            let (notify, notify_in) = &pipes.accept_notify;
            all.extend([notify, notify_in, pipes.messages.pipe(), &pipes.messages_in]);
            all.extend(pipes.access.iter().flat_map(Handout::ends));
        }
        let mut named: Vec<Named<'_>> = names::of_generation(id).into_iter().zip(all).collect();
        if let Some(reports) = self.pipes.as_ref().and_then(|it| it.reports.as_ref()) {
            let (out, into) = reports.ends();
            named.extend(names::reports(id).into_iter().zip([out, into]));
        }
        named
    }
}

impl Generation {
    pub(crate) fn take_slow_log(&mut self, file: Option<File>) {
        match (&mut self.slow_log, file) {
            (_, None) => {}
            (Some(log), Some(file)) => log.turn_to(file),
            (log, Some(file)) => *log = Some(Appender::new(file, owner(&self.settings).0)),
        }
    }
}

/// Opens a pool's access log. Returns `None` for a pool without one.
pub(crate) fn open_access_log(pool: &Pool) -> Result<Option<OwnedFd>, LogError> {
    let access = pool.logs.access.as_ref();
    access.map(|access| open_file(&access.path)).transpose()
}

impl Keyed for Generation {
    type Key = PoolId;

    fn key(&self) -> &PoolId {
        &self.pool
    }
}

impl Generation {
    pub(crate) fn new(pool: PoolId, settings: Settings, access: Option<OwnedFd>) -> Generation {
        let mut generation = Generation {
            pool,
            settings,
            began: Some(clock::now()),
            resources: None,
            notify: WakeOnAccept::default(),
            slots: HashMap::new(),
            make: Make::default(),
            access: None,
            slow_log: None,
            app_log: None,
            unreplaced: 0,
            secrets: BTreeMap::new(),
            share: None,
            turn: None,
            choice: None,
            logged_choice: None,
        };
        generation.access = access.and_then(|file| {
            let name = &generation.settings.pool.name;
            let theirs = generation.for_workers(file);
            theirs
                .map_err(|error| log::error!("[pool {name}] there is no access log: {error}"))
                .ok()
        });
        generation
    }

    pub(crate) fn share(&mut self, instances: usize) -> Result<Share, Error> {
        if let Some(share) = &self.share {
            return Ok(share.clone());
        }
        let name = format!("forkyard program {}", self.settings.pool.name);
        let share = Share::create(&name, instances, self.settings.slots as usize)?;
        Ok(self.share.insert(share).clone())
    }

    /// The descriptors for the next master.
    pub(crate) fn named(&self, id: GenerationId) -> Vec<Named<'_>> {
        let resources = self.resources.as_ref().filter(|_| !self.is_ordered());
        resources.map_or_else(Vec::new, |resources| resources.named(id.0))
    }

    /// The table of its program's processes.
    pub(crate) fn named_share(&self, id: GenerationId) -> Option<Named<'_>> {
        let share = self.share.as_ref()?;
        Some((names::program_table(id.0), share.memory()))
    }

    /// Whether its workers are ordered: their resources end with this master.
    pub(crate) fn is_ordered(&self) -> bool {
        matches!(self.settings.pool.pm, ProcessManager::Ordered { .. })
    }

    pub(crate) fn open(&mut self) -> Result<(), Error> {
        let pipes = Pipes::open(&self.settings.pool.application, self.access.as_ref())?;
        match &mut self.resources {
            Some(resources) => resources.pipes = Some(pipes),
            None => {
                let name = format!("forkyard {}", self.settings.pool.name);
                let slots = self.settings.slots as usize;
                let board = match self.settings.pool.load.lanes {
                    Some(_) => Board::create_with_lanes(&name, slots)?,
                    None => Board::create(&name, slots)?,
                };
                self.resources = Some(Box::new(Resources::new(board, Some(pipes))));
            }
        }
        self.set_wake_on_accept(self.notify);
        self.set_tell_crowded(true);
        self.set_quiet_wish();
        self.set_turn(self.turn);
        Ok(())
    }

    pub(crate) fn pipes(&self) -> Option<&Pipes> {
        self.resources.as_ref()?.pipes.as_ref()
    }

    /// The pipes.
    ///
    /// # Errors
    /// The generation has no process.
    pub(crate) fn connected(&self) -> Result<&Pipes, Error> {
        let name = self.settings.pool.name.as_str();
        self.pipes()
            .ok_or_else(|| Error::new("start", name, Errno::EINVAL))
    }

    pub(crate) fn pipes_mut(&mut self) -> Option<&mut Pipes> {
        self.resources.as_mut()?.pipes.as_mut()
    }

    /// Opens the access log again; workers use it from their next line on. Returns whether there is one.
    pub(crate) fn reopen_access_log(&mut self) -> Result<bool, LogError> {
        let Some(file) = open_access_log(&self.settings.pool)? else {
            return Ok(false);
        };
        self.take_access_log(file)?;
        Ok(true)
    }

    pub(crate) fn take_access_log(&mut self, file: OwnedFd) -> Result<(), LogError> {
        let Some(settings) = &self.settings.pool.logs.access else {
            return Ok(());
        };
        let failed = |error: Error| LogError::new(&settings.path, error.errno.into());
        let file = self.for_workers(file).map_err(failed)?;
        if let Some(resources) = &self.resources {
            if let Some(handout) = resources.pipes.as_ref().and_then(|pipes| pipes.access.as_ref()) {
                let uid = self.settings.identity.as_ref().map(|it| it.uid);
                let whose = format!("user {}", uid.unwrap_or_else(identity::own_user));
                handout.replace(&file, &whose).map_err(failed)?;
                header::add_logs_opened(resources.board.header());
            }
        }
        self.access = Some(file);
        Ok(())
    }

    /// The workers' handle of an access log. A log shared with other users only allows appending.
    fn for_workers(&self, file: OwnedFd) -> Result<OwnedFd, Error> {
        match self.is_ordered() && identity::is_root() {
            true => appended_by_others(&file, owner(&self.settings).0),
            false => Ok(file),
        }
    }

    pub(crate) fn set_wake_on_accept(&mut self, notify: WakeOnAccept) {
        self.notify = notify;
        if let Some(resources) = &self.resources {
            let value = header::WakeOnAccept {
                always: notify.always,
                idle_below: notify.idle_below,
            };
            header::set_wake_on_accept(resources.board.header(), value);
        }
    }

    /// Has workers of a static pool report a queue, or not.
    pub(crate) fn set_tell_crowded(&self, tell: bool) {
        let is_static = matches!(self.settings.pool.pm, ProcessManager::Static { .. });
        if let Some(resources) = self.resources.as_ref().filter(|_| is_static) {
            header::set_tell_crowded(resources.board.header(), tell);
        }
    }

    /// Publishes the autopilot's needs from workers.
    pub(crate) fn set_wish(&self, wish: Wish) {
        if let Some(resources) = self.resources.as_ref().filter(|_| !self.is_ordered()) {
            header::set_wish(resources.board.header(), wish);
        }
    }

    pub(crate) fn set_quiet_wish(&self) {
        self.set_wish(quiet_wish(self.most_workers()));
        let gate = self.resources.as_ref().and_then(|it| it.board.gate());
        if let Some((gate, choice)) = gate.zip(self.choice) {
            gate.limit_to(choice.most as usize, clock::now());
        }
    }

    pub(crate) fn context(
        &self,
        listener: &OwnedFd,
        http: Option<&OwnedFd>,
        queues: &Queues,
    ) -> Result<GenerationContext, Error> {
        let pipes = self.connected()?;
        let memory = self.resources.as_ref().ok_or_else(closed)?.board.memory();
        let settings = self.settings_with_secrets();
        let group = confine::group(&settings.pool).filter(|_| needs_entrance(&settings.pool));
        let group = group.map(|group| confine::entrance(&group)).transpose();
        let group = group.map_err(|error| Error::new("open", error.to_string(), Errno::EACCES))?;
        let http = http.filter(|_| self.settings.pool.http_listen.is_some());
        let access = pipes.access.as_ref();
        let (queue_out, queue_in) = queues.hand_off().ok_or_else(closed)?;
        let four = |kind: QueueKind, is_used: bool| match queues.get(kind).filter(|_| is_used) {
            Some([a, b, c, d]) => Ok::<_, Error>(Some([copy(a)?, copy(b)?, copy(c)?, copy(d)?])),
            _ => Ok(None),
        };
        let lanes = four(QueueKind::Lanes, settings.pool.load.lanes.is_some())?;
        let turns = four(QueueKind::Turns, settings.turn.is_some())?;
        Ok(GenerationContext {
            settings,
            listener: copy(listener)?,
            queue_out: copy(queue_out)?,
            queue_in: copy(queue_in)?,
            accept_notify: copy(&pipes.accept_notify.1)?,
            messages: copy(&pipes.messages_in)?,
            board_writable: copy(&memory.writable)?,
            board_readable: memory.readable()?,
            http: http.map(copy).transpose()?,
            group: group.map(OwnedFd::from),
            lanes,
            turns,
            access: access.map(|handout| copy(handout.shelf())).transpose()?,
        })
    }

    pub(crate) fn occupy(&mut self, slot: u32, worker: WorkerId) {
        if let Some(resources) = &self.resources {
            resources.board.wipe(slot as usize);
            header::set_retire(resources.board.header(), slot as usize, false);
            header::set_used(resources.board.header(), slot as usize, true);
        }
        self.slots.insert(slot, worker);
    }

    /// A worker's page of the scoreboard.
    pub(crate) fn page(&self, slot: u32) -> Option<&[AtomicU64]> {
        self.resources.as_ref()?.board.slot(slot as usize)
    }

    /// Its workers, each with its slot and its page.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u32, WorkerId, &[AtomicU64])> {
        let slots = self.slots.iter();
        slots.filter_map(|(slot, worker)| Some((*slot, *worker, self.page(*slot)?)))
    }

    /// Returns how many requests named a script that is missing or refused, those of past workers included. Untrusted.
    pub(crate) fn refused(&self) -> u64 {
        let Some(resources) = &self.resources else {
            return 0;
        };
        let count = |cause| {
            let pages = self.pages().map(|(_, _, page)| page);
            refusals::told(resources.board.header(), pages, cause).0
        };
        RefusalCause::ALL
            .into_iter()
            .map(count)
            .fold(0, u64::saturating_add)
    }

    /// Frees a slot, and adds the counters of its worker to the generation's past.
    pub(crate) fn free_slot(&mut self, slot: u32) {
        self.slots.remove(&slot);
        if let Some(share) = &self.share {
            share.table().release_slot(slot as usize);
        }
        let Some(resources) = &self.resources else { return };
        let (words, index) = (resources.board.header(), slot as usize);
        resources.board.settle(index, clock::now());
        if let Some(page) = resources.board.slot(index) {
            let entry = slot_reader::read(page);
            let max_active = entry.max_active.min(u64::from(self.settings.slots));
            header::add(words, field::PAST_REQUESTS, entry.requests);
            header::add(
                words,
                field::PAST_ACCEPTS,
                slot_reader::word(page, slot_field::ACCEPTS),
            );
            header::raise(words, field::PAST_MAX_ACTIVE, max_active);
            header::raise(words, field::PAST_MAX_QUEUE, entry.max_queue);
            header::raise(words, field::PAST_MAX_MEMORY, entry.max_memory);
            refusals::keep(words, page);
            let rewound = slot_reader::rewound(page, slot_field::REWOUND);
            for (index, more) in rewound.into_iter().enumerate() {
                header::add(words, field::PAST_REWOUND + index, more);
            }
        }
        header::set_used(words, index, false);
        header::set_retire(words, index, false);
    }

    /// The present time, seconds since 1970.
    pub(crate) fn started_now() -> u64 {
        clock::epoch_seconds()
    }
}

/// Returns the number of requests that a worker serves before its promotion, given earlier promotions.
pub(crate) fn refork_at(settings: &Settings, promotions: usize) -> Option<u64> {
    settings.pool.application.wrapped()?.refork_at(promotions)
}

pub(crate) fn closed() -> Error {
    Error::new("start", "the pool is closed", Errno::EINVAL)
}

/// The autopilot's needs from the workers of a quiet pool with this many places. A single worker is often busy: it
/// reports only a queue.
pub(crate) fn quiet_wish(places: u32) -> Wish {
    Wish {
        busy_above: Some((places / 2).max(1)),
        samples: false,
    }
}

/// Returns the settings with the paths of a release.
pub(crate) fn with_map(mut settings: Settings, map: Option<Box<Map>>) -> Settings {
    if let Some(map) = &map {
        settings.pool = Arc::new(in_release(&settings.pool, map));
        settings.restart_mark = settings.restart_file().and_then(|path| RestartMark::of(&path));
    }
    settings.release = map;
    settings
}
