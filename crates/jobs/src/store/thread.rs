//! The writing thread. Database drivers block; the loop that answers clients must not.
//!
//! A second thread syncs commits to the disk: clients get their answers after that, while further transactions commit
//! and jobs start.

use super::looks::{Looks, Opened};
use super::operation::{Operation, Reply};
use super::sql::{Notice, Syncer};
use super::{Changes, Committed, Store, StoreError};
use crate::core::GroupName;
use forkyard_sys::clock;
use mio::Waker;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MOST_WAITING: usize = 4_096;
const MOST_TOGETHER: usize = 512;
/// Idle for this long, the writer has all other changes synced.
const SYNC_AFTER: Duration = Duration::from_millis(100);
/// The time limit for closing the store.
const CLOSING: Duration = Duration::from_secs(4);
const RETRY_AFTER: Duration = Duration::from_millis(500);

pub type Opener = Box<dyn FnMut() -> Result<Store, StoreError> + Send>;

#[derive(Debug)]
pub enum StoreEvent {
    Opened(Changes),
    Unopened(String),
    Reply(u64, Reply),
    Changes(Changes),
    Due(Option<i64>),
    Failed(String),
    Well,
    Noticed(Notice),
}

/// The way from the threads to the loop.
#[derive(Debug, Clone)]
pub(super) struct ToLoop {
    events: Sender<StoreEvent>,
    waker: Arc<Waker>,
}

impl ToLoop {
    pub(super) fn say(&self, event: StoreEvent) {
        // Only a process that ends has no loop.
        let _ = self.events.send(event);
    }

    pub(super) fn wake(&self) {
        let _ = self.waker.wake();
    }
}

#[derive(Debug)]
pub struct StoreThread {
    operations: SyncSender<(u64, Operation)>,
    events: Receiver<StoreEvent>,
    waiting: VecDeque<(u64, Operation)>,
    last: u64,
    /// The operations without a reply, and the time of each, milliseconds.
    open: BTreeMap<u64, u64>,
    /// The reads without a reply.
    looking: HashSet<u64>,
    turn: Arc<Mutex<Turn>>,
    is_shared: bool,
    looks: Looks,
    writer: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Turn {
    /// The last operation that was begun; they come in order.
    begun: u64,
    withdrawn: HashSet<u64>,
}

fn begins(turn: &Mutex<Turn>, number: u64) -> bool {
    let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    turn.begun = number;
    !turn.withdrawn.remove(&number)
}

impl StoreThread {
    /// Starts the thread, which opens the store.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(
        open: Opener,
        is_shared: bool,
        is_durable: bool,
        waker: Arc<Waker>,
    ) -> std::io::Result<StoreThread> {
        let (operations, received) = sync_channel(MOST_WAITING);
        let (said, events) = channel();
        let to_loop = ToLoop { events: said, waker };
        let turn = Arc::<Mutex<Turn>>::default();
        let (looks, opened) = Looks::start(to_loop.clone())?;
        let opening = Opening {
            open,
            opened,
            is_durable,
            turn: Arc::clone(&turn),
            operations: received,
            to_loop,
        };
        let writer = std::thread::Builder::new().name("store".into()).spawn(move || {
            if let Some(writer) = opening.open() {
                writer.run();
            }
        })?;
        Ok(StoreThread {
            operations,
            events,
            waiting: VecDeque::new(),
            last: 0,
            open: BTreeMap::new(),
            looking: HashSet::new(),
            turn,
            is_shared,
            looks,
            writer,
        })
    }

    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub fn is_full(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub fn ask(&mut self, operation: Operation) -> u64 {
        self.last += 1;
        match operation.is_look() {
            true => _ = self.looking.insert(self.last),
            false => _ = self.open.insert(self.last, clock::now().as_nanos() / 1_000_000),
        }
        self.waiting.push_back((self.last, operation));
        self.push();
        self.last
    }

    pub fn push(&mut self) {
        while let Some(next) = self.waiting.pop_front() {
            if next.1.is_look() {
                self.looks.ask(next.0, next.1);
                continue;
            }
            match self.operations.try_send(next) {
                Ok(()) => {}
                Err(TrySendError::Full(back)) => return self.waiting.push_front(back),
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }

    pub fn is_busy(&self) -> bool {
        !self.open.is_empty() || !self.looking.is_empty()
    }

    pub fn waits_since_ms(&self) -> Option<u64> {
        self.open.first_key_value().map(|(_, asked_ms)| *asked_ms)
    }

    pub fn withdraw(&mut self, number: u64) -> bool {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        turn.begun < number && turn.withdrawn.insert(number)
    }

    /// Closes the store. SQLite moves its log into the file.
    pub fn close(self) {
        self.looks.close();
        drop(self.operations);
        let begun = Instant::now();
        // A store that hangs while opening is not waited for.
        while !self.writer.is_finished() && begun.elapsed() < CLOSING {
            pause(Duration::from_millis(2));
        }
    }

    pub fn next_event(&mut self) -> Option<StoreEvent> {
        let event = self.events.try_recv().ok()?;
        if let StoreEvent::Reply(number, _) = &event {
            self.open.remove(number);
            self.looking.remove(number);
        }
        Some(event)
    }
}

struct Disk {
    replies: Sender<Vec<(u64, Reply)>>,
}

impl Disk {
    fn start(sync: Syncer, to_loop: ToLoop) -> std::io::Result<Disk> {
        let (replies, received) = channel();
        std::thread::Builder::new()
            .name("disk".into())
            .spawn(move || Disk::run(&sync, &received, &to_loop))?;
        Ok(Disk { replies })
    }

    fn run(sync: &Syncer, received: &Receiver<Vec<(u64, Reply)>>, to_loop: &ToLoop) {
        let say = |event| to_loop.say(event);
        while let Ok(first) = received.recv() {
            let more: Vec<_> = received.try_iter().collect();
            let replies = std::iter::once(first).chain(more).flatten();
            match sync() {
                Ok(()) => replies.for_each(|(number, reply)| say(StoreEvent::Reply(number, reply))),
                Err(error) => {
                    let reason = format!("it may not be on the disk: {error}");
                    say(StoreEvent::Failed(reason.clone()));
                    for (number, _) in replies {
                        say(StoreEvent::Reply(number, Reply::Failed(reason.clone())));
                    }
                    to_loop.wake();
                    // No job starts until it works, so no other call would try again.
                    while sync().is_err() {
                        pause(RETRY_AFTER);
                    }
                    say(StoreEvent::Well);
                }
            }
            to_loop.wake();
        }
    }
}

struct Opening {
    open: Opener,
    opened: Opened,
    is_durable: bool,
    turn: Arc<Mutex<Turn>>,
    operations: Receiver<(u64, Operation)>,
    to_loop: ToLoop,
}

impl Opening {
    /// Opens the store eventually. `None`: the process ends.
    fn open(mut self) -> Option<Writer> {
        loop {
            let why = match (self.open)() {
                Ok(store) => match self.begin(store) {
                    Ok((store, disk, waiting)) => {
                        self.to_loop.say(StoreEvent::Opened(waiting.clone()));
                        self.to_loop.wake();
                        return Some(Writer {
                            store,
                            told: waiting,
                            is_durable: self.is_durable,
                            disk,
                            turn: self.turn,
                            operations: self.operations,
                            to_loop: self.to_loop,
                            is_unsynced: false,
                            has_failed: false,
                        });
                    }
                    Err(error) => error.to_string(),
                },
                Err(error) => error.to_string(),
            };
            self.to_loop.say(StoreEvent::Unopened(why));
            self.to_loop.wake();
            // No operation comes before the store is open.
            if let Err(RecvTimeoutError::Disconnected) = self.operations.recv_timeout(RETRY_AFTER) {
                return None;
            }
        }
    }

    fn begin(&self, mut store: Store) -> Result<(Store, Option<Disk>, Changes), Box<dyn std::error::Error>> {
        let waiting = store.waiting()?;
        let _ = self.opened.send(store.reader());
        let to_loop = self.to_loop.clone();
        store.listen(Box::new(move |notice| {
            to_loop.say(StoreEvent::Noticed(notice));
            to_loop.wake();
        }))?;
        let disk = store.syncer().map(|sync| Disk::start(sync, self.to_loop.clone()));
        Ok((store, disk.transpose()?, waiting))
    }
}

struct Writer {
    store: Store,
    disk: Option<Disk>,
    /// The counts of claimable jobs that the scheduler has received.
    told: Changes,
    is_durable: bool,
    turn: Arc<Mutex<Turn>>,
    operations: Receiver<(u64, Operation)>,
    to_loop: ToLoop,
    is_unsynced: bool,
    has_failed: bool,
}

impl Writer {
    fn run(mut self) {
        while let Some(mut batch) = self.next_batch() {
            while let Err(error) = self.commit(&mut batch) {
                self.fail(&error.to_string(), &mut batch);
                if batch.is_empty() {
                    break;
                }
                // Ends of jobs are kept until they are written; there are at most as many as workers. Clients' new
                // requests are refused with the rest if it fails again.
                pause(RETRY_AFTER);
                let come: Vec<_> = self.operations.try_iter().take(MOST_TOGETHER).collect();
                batch.extend(self.begin(come));
            }
        }
    }

    /// The next batch; `None`: the process ends.
    fn next_batch(&mut self) -> Option<Vec<(u64, Operation)>> {
        let first = loop {
            let patience = if self.has_failed { RETRY_AFTER } else { SYNC_AFTER };
            match self.operations.recv_timeout(patience) {
                Ok(first) => break first,
                // No job is claimed until it works, so no other call would try again.
                Err(RecvTimeoutError::Timeout) if self.has_failed => self.retry(),
                Err(RecvTimeoutError::Timeout) if self.is_unsynced => self.sync(Vec::new()),
                Err(RecvTimeoutError::Timeout) => break self.operations.recv().ok()?,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        };
        let mut batch = vec![first];
        while batch.len() < MOST_TOGETHER {
            let Ok(next) = self.operations.try_recv() else {
                break;
            };
            batch.push(next);
        }
        Some(self.begin(batch))
    }

    fn begin(&self, mut batch: Vec<(u64, Operation)>) -> Vec<(u64, Operation)> {
        batch.retain(|(number, _)| {
            let is_wanted = begins(&self.turn, *number);
            if !is_wanted {
                self.to_loop.say(StoreEvent::Reply(*number, Reply::Done));
            }
            is_wanted
        });
        batch
    }

    fn retry(&mut self) {
        if self.store.probe().is_ok() {
            self.has_failed = false;
            self.to_loop.say(StoreEvent::Well);
            self.to_loop.wake();
        }
    }

    fn sync(&mut self, replies: Vec<(u64, Reply)>) {
        self.is_unsynced = false;
        if let Some(disk) = &self.disk {
            let _ = disk.replies.send(replies);
        }
    }

    fn commit(&mut self, batch: &mut Vec<(u64, Operation)>) -> Result<(), StoreError> {
        let (numbers, operations): (Vec<u64>, Vec<Operation>) = std::mem::take(batch).into_iter().unzip();
        let now_ms = i64::try_from(clock::epoch_micros() / 1_000).unwrap_or(i64::MAX);
        let committed = match self.perform(&operations, now_ms) {
            Ok(committed) => committed,
            Err(error) => {
                *batch = numbers.into_iter().zip(operations).collect();
                return Err(error);
            }
        };
        self.is_unsynced = self.is_durable && self.disk.is_some();
        self.tell_all(numbers, committed);
        Ok(())
    }

    /// Performs a batch. One that was undone by a lost connection is repeated once.
    fn perform(&mut self, operations: &[Operation], now_ms: i64) -> Result<Committed, StoreError> {
        let mut is_second = false;
        loop {
            let error = match self.store.perform(operations, now_ms) {
                Ok(committed) => return Ok(committed),
                Err(error) if !self.store.is_in_doubt() => return Err(error),
                Err(error) => error,
            };
            match self.resolve(&error) {
                Some(committed) => return Ok(committed),
                None if is_second => return Err(error),
                None => is_second = true,
            }
        }
    }

    /// Resolves a transaction without an answer. `None`: it was undone. Blocks until then, because this process must run the
    /// jobs that the transaction claimed.
    fn resolve(&mut self, error: &StoreError) -> Option<Committed> {
        loop {
            match self.store.resolve() {
                Ok(outcome) => return outcome,
                Err(why) => log::debug!("jobs: {why}"),
            }
            self.fail(&error.to_string(), &mut Vec::new());
            pause(RETRY_AFTER);
        }
    }

    fn tell_all(&mut self, numbers: Vec<u64>, committed: Committed) {
        if std::mem::take(&mut self.has_failed) {
            self.to_loop.say(StoreEvent::Well);
        }
        let mut changes = committed.changes;
        for reply in &committed.replies {
            if let Reply::Claimed(group, Some(_)) = reply {
                self.tell(group.clone(), -1);
            }
        }
        for (group, change) in &changes {
            self.tell(group.clone(), *change);
        }
        if let Some(waiting) = committed.waiting {
            for (group, change) in self.unknown(&waiting) {
                self.tell(group.clone(), change);
                *changes.entry(group).or_default() += change;
            }
        }
        // Before the replies, so that an empty claim is not repeated.
        if !changes.is_empty() {
            self.to_loop.say(StoreEvent::Changes(changes));
        }
        let mut waits = Vec::new();
        for (number, reply) in numbers.into_iter().zip(committed.replies) {
            match self.is_unsynced && is_told(&reply) {
                true => waits.push((number, reply)),
                false => self.to_loop.say(StoreEvent::Reply(number, reply)),
            }
        }
        if !waits.is_empty() {
            self.sync(waits);
        }
        if let Some(due) = committed.due {
            self.to_loop.say(StoreEvent::Due(due));
        }
        self.to_loop.wake();
    }

    fn tell(&mut self, group: GroupName, change: i64) {
        let count = self.told.get(&group).copied().unwrap_or(0) + change;
        match count {
            0 => _ = self.told.remove(&group),
            _ => _ = self.told.insert(group, count),
        }
    }

    fn unknown(&self, waiting: &Changes) -> Changes {
        let mut changes = waiting.clone();
        for (group, known) in &self.told {
            *changes.entry(group.clone()).or_default() -= known;
        }
        changes.retain(|_, change| *change != 0);
        changes
    }

    fn fail(&mut self, reason: &str, batch: &mut Vec<(u64, Operation)>) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.to_loop.say(StoreEvent::Failed(reason.to_owned()));
        }
        for (number, operation) in std::mem::take(batch) {
            match operation {
                operation if operation.has_to_be_written() => batch.push((number, operation)),
                Operation::Claim(group) => self
                    .to_loop
                    .say(StoreEvent::Reply(number, Reply::Claimed(group, None))),
                _ => self
                    .to_loop
                    .say(StoreEvent::Reply(number, Reply::Failed(reason.to_owned()))),
            }
        }
        self.to_loop.wake();
    }
}

fn is_told(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Pushed(_) | Reply::Changed { .. } | Reply::Sequence(..)
    )
}

fn pause(time: Duration) {
    std::thread::sleep(time);
}
