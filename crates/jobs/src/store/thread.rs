//! The one thread that writes. Both drivers of databases block; the loop that answers clients must not.
//!
//! A second one brings to the disk what was committed, where a commit does not: what a client waits for is answered when that
//! has come back, and meanwhile further transactions are committed and jobs start.

use super::looks::{Looks, Opened};
use super::operation::{Operation, Reply};
use super::sql::{Notice, Syncer};
use super::{Changes, Committed, Store, StoreError};
use forkyard_sys::clock;
use mio::Waker;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MOST_WAITING: usize = 4_096;
const MOST_TOGETHER: usize = 512;
/// How long what was not said to be on the disk may not be there.
const SYNC_AFTER: Duration = Duration::from_millis(100);
/// How long a store may take to be closed.
const CLOSING: Duration = Duration::from_secs(4);
const RETRY_AFTER: Duration = Duration::from_millis(500);

pub type Opener = Box<dyn FnMut() -> Result<Store, String> + Send>;

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

#[derive(Debug)]
pub struct StoreThread {
    operations: SyncSender<(u64, Operation)>,
    events: Receiver<StoreEvent>,
    waiting: VecDeque<(u64, Operation)>,
    last: u64,
    open: BTreeMap<u64, u64>,
    /// The same of those that only look.
    looking: HashSet<u64>,
    turn: Arc<Mutex<Turn>>,
    is_shared: bool,
    looks: Looks,
    writer: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Turn {
    /// The last operation that it has begun with. They come in the order of their numbers.
    begun: u64,
    withdrawn: HashSet<u64>,
}

fn begins(turn: &Mutex<Turn>, number: u64) -> bool {
    let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    turn.begun = number;
    !turn.withdrawn.remove(&number)
}

impl StoreThread {
    /// Starts it; it opens the store, however long that takes.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn start(
        open: Opener,
        is_shared: bool,
        is_durable: bool,
        waker: Arc<Waker>,
    ) -> std::io::Result<StoreThread> {
        let (operations, received) = sync_channel(MOST_WAITING);
        let (said, events) = channel();
        let turn = Arc::<Mutex<Turn>>::default();
        let (looks, opened) = Looks::start(said.clone(), Arc::clone(&waker))?;
        let opening = Opening {
            open,
            opened,
            is_durable,
            turn: Arc::clone(&turn),
            operations: received,
            events: said,
            waker,
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

    /// Closes the store: nothing is to be done any more. SQLite puts what is in its log into the file then.
    pub fn close(self) {
        self.looks.close();
        drop(self.operations);
        let begun = Instant::now();
        // One that hangs while it is opened is not waited for.
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
    fn start(sync: Syncer, events: Sender<StoreEvent>, waker: Arc<Waker>) -> std::io::Result<Disk> {
        let (replies, received) = channel();
        std::thread::Builder::new()
            .name("disk".into())
            .spawn(move || Disk::run(&sync, &received, &events, &waker))?;
        Ok(Disk { replies })
    }

    fn run(
        sync: &Syncer,
        received: &Receiver<Vec<(u64, Reply)>>,
        events: &Sender<StoreEvent>,
        waker: &Waker,
    ) {
        let say = |event| _ = events.send(event);
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
                    let _ = waker.wake();
                    // Nothing starts until it is well, so nothing else would try.
                    while sync().is_err() {
                        pause(RETRY_AFTER);
                    }
                    say(StoreEvent::Well);
                }
            }
            let _ = waker.wake();
        }
    }
}

struct Opening {
    open: Opener,
    opened: Opened,
    is_durable: bool,
    turn: Arc<Mutex<Turn>>,
    operations: Receiver<(u64, Operation)>,
    events: Sender<StoreEvent>,
    waker: Arc<Waker>,
}

impl Opening {
    /// Opens the store, sooner or later. `None`: the process ends.
    fn open(mut self) -> Option<Writer> {
        loop {
            let why = match (self.open)() {
                Ok(store) => match self.begin(store) {
                    Ok((store, disk, waiting)) => {
                        self.say(StoreEvent::Opened(waiting.clone()));
                        return Some(Writer {
                            store,
                            told: waiting,
                            is_durable: self.is_durable,
                            disk,
                            turn: self.turn,
                            operations: self.operations,
                            events: self.events,
                            waker: self.waker,
                            is_unsynced: false,
                            has_failed: false,
                        });
                    }
                    Err(error) => error.to_string(),
                },
                Err(why) => why,
            };
            self.say(StoreEvent::Unopened(why));
            // Nothing is asked for before it is open.
            if let Err(RecvTimeoutError::Disconnected) = self.operations.recv_timeout(RETRY_AFTER) {
                return None;
            }
        }
    }

    fn begin(&self, mut store: Store) -> Result<(Store, Option<Disk>, Changes), Box<dyn std::error::Error>> {
        let waiting = store.waiting()?;
        let _ = self.opened.send(store.reader());
        let (notices, bell) = (self.events.clone(), Arc::clone(&self.waker));
        store.listen(Box::new(move |notice| {
            // The loop is gone only when the process is.
            let _ = notices.send(StoreEvent::Noticed(notice));
            let _ = bell.wake();
        }))?;
        let disk = match store.syncer() {
            Some(sync) => Some(Disk::start(sync, self.events.clone(), Arc::clone(&self.waker))?),
            None => None,
        };
        Ok((store, disk, waiting))
    }

    fn say(&self, event: StoreEvent) {
        let _ = self.events.send(event);
        let _ = self.waker.wake();
    }
}

struct Writer {
    store: Store,
    disk: Option<Disk>,
    /// What the scheduler knows of what can be claimed, once it has heard all that was said.
    told: Changes,
    is_durable: bool,
    turn: Arc<Mutex<Turn>>,
    operations: Receiver<(u64, Operation)>,
    events: Sender<StoreEvent>,
    waker: Arc<Waker>,
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
                // How jobs ended is kept until it is written: no more of that comes than there are workers. Clients that have
                // come meanwhile are refused with the rest, if it fails again.
                pause(RETRY_AFTER);
                let come: Vec<_> = self.operations.try_iter().take(MOST_TOGETHER).collect();
                batch.extend(self.begin(come));
            }
        }
    }

    /// What is to be done next; `None`: the process ends.
    fn next_batch(&mut self) -> Option<Vec<(u64, Operation)>> {
        let first = loop {
            let patience = if self.has_failed { RETRY_AFTER } else { SYNC_AFTER };
            match self.operations.recv_timeout(patience) {
                Ok(first) => break first,
                // Nothing is claimed until it is well: nothing else would try.
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
                self.say(StoreEvent::Reply(*number, Reply::Done));
            }
            is_wanted
        });
        batch
    }

    fn retry(&mut self) {
        if self.store.probe().is_ok() {
            self.has_failed = false;
            self.say(StoreEvent::Well);
            self.wake();
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

    /// Does all of this. What was undone because the connection ended while it was committed is done once more.
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

    /// What a transaction brought whose answer was lost; `None`: it was undone. As long as that is not known nothing else is
    /// done: what was claimed by it is under way here.
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
            self.say(StoreEvent::Well);
        }
        let mut changes = committed.changes;
        for reply in &committed.replies {
            if let Reply::Claimed {
                queue,
                tenant,
                job: Some(_),
            } = reply
            {
                self.tell((queue.clone(), tenant.clone()), -1);
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
        // Before the replies: a claim that found nothing is not to be made again.
        if !changes.is_empty() {
            self.say(StoreEvent::Changes(changes));
        }
        let mut waits = Vec::new();
        for (number, reply) in numbers.into_iter().zip(committed.replies) {
            match self.is_unsynced && is_told(&reply) {
                true => waits.push((number, reply)),
                false => self.say(StoreEvent::Reply(number, reply)),
            }
        }
        if !waits.is_empty() {
            self.sync(waits);
        }
        if let Some(due) = committed.due {
            self.say(StoreEvent::Due(due));
        }
        self.wake();
    }

    fn tell(&mut self, group: (String, String), change: i64) {
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
            self.say(StoreEvent::Failed(reason.to_owned()));
        }
        for (number, operation) in std::mem::take(batch) {
            match operation {
                operation if operation.has_to_be_written() => batch.push((number, operation)),
                Operation::Claim { queue, tenant } => self.say(StoreEvent::Reply(
                    number,
                    Reply::Claimed {
                        queue,
                        tenant,
                        job: None,
                    },
                )),
                _ => self.say(StoreEvent::Reply(number, Reply::Failed(reason.to_owned()))),
            }
        }
        self.wake();
    }

    fn say(&self, event: StoreEvent) {
        // The loop is gone only when the process is.
        let _ = self.events.send(event);
    }

    fn wake(&self) {
        let _ = self.waker.wake();
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
