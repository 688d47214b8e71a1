//! The addresses and load of a program's processes, in memory shared by the master and a generation's workers.
//!
//! The master publishes and withdraws processes; workers count the requests that they pass to each. Every process has a
//! unique number, its *life*, in the same word as its count, so late changes for a process that has exited have no
//! effect. Each worker also records how many requests it holds per process, so the master can subtract them if the
//! worker is killed.
//!
//! Any worker can corrupt the table, but only for its own pool; the master trusts none of it.

use forkyard_config::Address;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

const HEAD_WORDS: usize = 8;
const FAILURE: usize = 0;
const LIVES: usize = 1;
/// Words of a process: life and count, length of the address, address, pid, and finished requests with the mark
/// [`BROKE`].
const PROCESS_WORDS: usize = 24;
const STATE: usize = 0;
const LENGTH: usize = 1;
const TEXT: usize = 2;
const SERVED: usize = PROCESS_WORDS - 1;
const PID: usize = SERVED - 1;
const MOST_TEXT_BYTES: usize = (PID - TEXT) * 8;
/// Set in the word of a failure; the id has 32 bits.
const FAILED: u64 = 1 << 32;
/// Set in [`SERVED`] if the process dropped a request's connection and has finished none since: the request may have
/// crashed it.
const BROKE: u64 = 1 << 63;
const COUNT: u64 = u32::MAX as u64;

/// A table in memory mapped by the caller.
#[derive(Debug, Clone, Copy)]
pub struct Table<'m> {
    words: &'m [AtomicU64],
    processes: usize,
}

/// A running process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessEntry {
    /// The process's place in the table.
    pub index: usize,
    /// Its life.
    pub life: u32,
}

pub(super) const fn words(processes: usize, slots: usize) -> usize {
    HEAD_WORDS + processes * PROCESS_WORDS + slots * processes
}

impl<'m> Table<'m> {
    /// Uses these words, which must be zero at first.
    pub fn new(words: &'m [AtomicU64], processes: usize) -> Table<'m> {
        Table { words, processes }
    }

    fn word(&self, index: usize) -> Option<&'m AtomicU64> {
        self.words.get(index)
    }

    fn of_process(&self, index: usize, word: usize) -> Option<&'m AtomicU64> {
        (index < self.processes).then(|| self.word(HEAD_WORDS + index * PROCESS_WORDS + word))?
    }

    fn held(&self, slot: usize, index: usize) -> Option<&'m AtomicU64> {
        let first = HEAD_WORDS + self.processes * PROCESS_WORDS;
        (index < self.processes).then(|| self.word(first + slot * self.processes + index))?
    }

    /// Master: publishes the address and pid of a process. Returns false if the address is too long.
    pub fn publish(&self, index: usize, address: &Address, pid: i32) -> bool {
        let text = write(address);
        let (Some(state), Some(length), Some(lives)) = (
            self.of_process(index, STATE),
            self.of_process(index, LENGTH),
            self.word(LIVES),
        ) else {
            return false;
        };
        if text.len() > MOST_TEXT_BYTES {
            return false;
        }
        state.store(0, Ordering::SeqCst);
        length.store(text.len() as u64, Ordering::SeqCst);
        for (at, piece) in text.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..piece.len()].copy_from_slice(piece);
            if let Some(word) = self.of_process(index, TEXT + at) {
                word.store(u64::from_ne_bytes(bytes), Ordering::SeqCst);
            }
        }
        if let Some(served) = self.of_process(index, SERVED) {
            served.store(0, Ordering::SeqCst);
        }
        if let Some(word) = self.of_process(index, PID) {
            word.store(u64::try_from(pid).unwrap_or(0), Ordering::SeqCst);
        }
        // Never 0, which means no process. Numbers repeat after 2^32 starts.
        let life = lives.fetch_add(1, Ordering::SeqCst) % COUNT + 1;
        state.store(life << 32, Ordering::SeqCst);
        self.set_failure(None);
        true
    }

    /// Master: removes a process.
    pub fn withdraw(&self, index: usize) {
        if let Some(state) = self.of_process(index, STATE) {
            state.store(0, Ordering::SeqCst);
        }
    }

    /// Master: sets the report id of the last failed start, or `None` while it is retried or after a success.
    pub fn set_failure(&self, id: Option<u32>) {
        if let Some(word) = self.word(FAILURE) {
            word.store(id.map_or(0, |id| FAILED | u64::from(id)), Ordering::SeqCst);
        }
    }

    /// The report id, if the last start failed.
    pub fn failure(&self) -> Option<u32> {
        let word = self.word(FAILURE)?.load(Ordering::SeqCst);
        (word & FAILED != 0).then_some((word & COUNT) as u32)
    }

    /// Master: subtracts the requests of a worker that has exited.
    pub fn release_slot(&self, slot: usize) {
        for index in 0..self.processes {
            let Some(word) = self.held(slot, index) else {
                return;
            };
            let held = word.swap(0, Ordering::SeqCst);
            let entry = ProcessEntry {
                index,
                life: (held >> 32) as u32,
            };
            self.change(entry, |count| Some(count.saturating_sub(held & COUNT)));
        }
    }

    /// The least busy process except those `tried`; ties go to the first one from `first` on.
    pub fn choose(&self, first: usize, tried: &[ProcessEntry]) -> Option<ProcessEntry> {
        let mut best: Option<(u64, ProcessEntry)> = None;
        for step in 0..self.processes {
            let index = (first % self.processes + step) % self.processes;
            let state = self.of_process(index, STATE)?.load(Ordering::SeqCst);
            let (life, count) = ((state >> 32) as u32, state & COUNT);
            let entry = ProcessEntry { index, life };
            let is_less = best.is_none_or(|(least, _)| count < least);
            if life != 0 && is_less && !tried.contains(&entry) {
                best = Some((count, entry));
            }
        }
        best.map(|(_, entry)| entry)
    }

    /// The address of a process; `None` if it has exited.
    pub fn address(&self, entry: ProcessEntry) -> Option<Address> {
        let length = self.of_process(entry.index, LENGTH)?.load(Ordering::SeqCst);
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= MOST_TEXT_BYTES)?;
        let mut text = Vec::with_capacity(length);
        for at in 0..length.div_ceil(8) {
            let word = self.of_process(entry.index, TEXT + at)?.load(Ordering::SeqCst);
            text.extend_from_slice(&word.to_ne_bytes());
        }
        text.truncate(length);
        // Read the life last: the master withdraws a process before it publishes another.
        self.lives(entry).then(|| read(&text))?
    }

    /// The process's pid; 0 if it has exited.
    pub fn pid(&self, entry: ProcessEntry) -> i32 {
        let pid = self
            .of_process(entry.index, PID)
            .map(|word| word.load(Ordering::SeqCst));
        let pid = pid.and_then(|pid| i32::try_from(pid).ok());
        pid.filter(|_| self.lives(entry)).unwrap_or(0)
    }

    /// Whether the process is still running.
    pub fn lives(&self, entry: ProcessEntry) -> bool {
        let state = self.of_process(entry.index, STATE);
        state.is_some_and(|state| state.load(Ordering::SeqCst) >> 32 == u64::from(entry.life))
    }

    /// How many requests the process at a place has.
    pub fn sessions(&self, index: usize) -> u32 {
        let state = self.of_process(index, STATE);
        state.map_or(0, |state| (state.load(Ordering::SeqCst) & COUNT) as u32)
    }

    /// How many requests the process at a place has finished.
    pub fn served(&self, index: usize) -> u64 {
        let served = self.of_process(index, SERVED);
        served.map_or(0, |served| served.load(Ordering::SeqCst) & !BROKE)
    }

    /// Master: whether the process at a place had a request when it exited.
    pub fn is_at_work(&self, index: usize) -> bool {
        // In this order, because a worker sets the mark before it decrements the count.
        let has_broken = || {
            let served = self.of_process(index, SERVED);
            served.is_some_and(|served| served.load(Ordering::SeqCst) & BROKE != 0)
        };
        self.sessions(index) > 0 || has_broken()
    }

    /// The process closed the connection before finishing a request. Call it before [`Table::give`].
    pub fn broke(&self, entry: ProcessEntry) {
        self.mark(entry, |served| served | BROKE);
    }

    /// The process has finished a request.
    pub fn finished(&self, entry: ProcessEntry) {
        self.mark(entry, |served| served & !BROKE);
    }

    fn mark(&self, entry: ProcessEntry, to: impl Fn(u64) -> u64) {
        if let Some(served) = self.of_process(entry.index, SERVED).filter(|_| self.lives(entry)) {
            let changed = |served| Some(to(served)).filter(|to| *to != served);
            let _ = served.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed);
        }
    }

    /// Counts a request of the worker in `slot`. Returns false if the process has exited.
    pub fn take(&self, slot: usize, entry: ProcessEntry) -> bool {
        let Some(own) = self.held(slot, entry.index) else {
            return false;
        };
        // Recorded first: if the worker is killed in between, one too many is subtracted, never one too few.
        let before = own.load(Ordering::SeqCst);
        let held = if before >> 32 == u64::from(entry.life) {
            before.saturating_add(1)
        } else {
            u64::from(entry.life) << 32 | 1
        };
        own.store(held, Ordering::SeqCst);
        let taken = self.change(entry, |count| count.checked_add(1).filter(|count| *count < COUNT));
        if !taken {
            own.store(before, Ordering::SeqCst);
        }
        taken
    }

    /// The worker's request is finished.
    pub fn give(&self, slot: usize, entry: ProcessEntry) {
        self.discount(entry);
        if let Some(served) = self.of_process(entry.index, SERVED).filter(|_| self.lives(entry)) {
            served.fetch_add(1, Ordering::Relaxed);
        }
        let Some(own) = self.held(slot, entry.index) else {
            return;
        };
        let held = own.load(Ordering::SeqCst);
        if held >> 32 == u64::from(entry.life) && held & COUNT > 0 {
            own.store(held - 1, Ordering::SeqCst);
        }
    }

    fn discount(&self, entry: ProcessEntry) {
        self.change(entry, |count| count.checked_sub(1));
    }

    fn change(&self, entry: ProcessEntry, to: impl Fn(u64) -> Option<u64>) -> bool {
        let Some(state) = self.of_process(entry.index, STATE) else {
            return false;
        };
        let next = |state: u64| {
            let same = state >> 32 == u64::from(entry.life) && entry.life != 0;
            same.then(|| to(state & COUNT))?
                .map(|count| state & !COUNT | count)
        };
        state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
            .is_ok()
    }
}

fn write(address: &Address) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    match address {
        Address::Unix(path) => path.as_os_str().as_bytes().to_vec(),
        Address::Tcp(address) => address.to_string().into_bytes(),
        Address::TcpAny(port) => SocketAddr::new(IpAddr::from([127, 0, 0, 1]), *port)
            .to_string()
            .into_bytes(),
    }
}

fn read(text: &[u8]) -> Option<Address> {
    use std::os::unix::ffi::OsStrExt;
    if text.starts_with(b"/") {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(text));
        return Some(Address::Unix(path));
    }
    std::str::from_utf8(text).ok()?.parse().ok().map(Address::Tcp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(processes: usize, slots: usize) -> Vec<AtomicU64> {
        (0..words(processes, slots)).map(|_| AtomicU64::new(0)).collect()
    }

    fn tcp(port: u16) -> Address {
        Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    #[test]
    fn the_least_busy_one_is_chosen() {
        let memory = memory(3, 4);
        let table = Table::new(&memory, 3);
        assert_eq!(table.choose(0, &[]), None);
        for index in 0..3 {
            assert!(table.publish(index, &tcp(5000 + index as u16), 7));
        }
        let first = table.choose(1, &[]).unwrap();
        assert_eq!((first.index, table.address(first)), (1, Some(tcp(5001))));
        assert!(table.take(0, first));
        let second = table.choose(1, &[]).unwrap();
        assert_eq!(second.index, 2);
        assert!(table.take(1, second));
        let third = table.choose(1, &[]).unwrap();
        assert_eq!(third.index, 0);
        assert_eq!(table.choose(1, &[third]).map(|entry| entry.index), Some(1));
        assert!(table.take(2, third) && table.take(3, first));
        table.give(2, third);
        assert_eq!(table.choose(1, &[]), Some(third));
        assert_eq!(
            [table.sessions(0), table.sessions(1), table.sessions(2)],
            [0, 2, 1]
        );
    }

    #[test]
    fn a_process_was_at_work_if_a_request_of_it_is_not_over_or_broke_last() {
        let memory = memory(1, 1);
        let table = Table::new(&memory, 1);
        table.publish(0, &tcp(5000), 7);
        let entry = table.choose(0, &[]).unwrap();
        let is_at_work = || (table.is_at_work(0), table.served(0));
        assert_eq!(is_at_work(), (false, 0));
        assert!(table.take(0, entry));
        assert_eq!(is_at_work(), (true, 0));
        table.finished(entry);
        table.give(0, entry);
        assert_eq!(is_at_work(), (false, 1));
        assert!(table.take(0, entry));
        table.broke(entry);
        table.give(0, entry);
        assert_eq!(is_at_work(), (true, 2));
        assert!(table.take(0, entry));
        table.finished(entry);
        table.give(0, entry);
        assert_eq!(is_at_work(), (false, 3));
        table.withdraw(0);
        table.publish(0, &tcp(5001), 8);
        table.broke(entry);
        assert_eq!(is_at_work(), (false, 0));
    }

    #[test]
    fn a_killed_worker_holds_nothing() {
        let memory = memory(1, 2);
        let table = Table::new(&memory, 1);
        table.publish(0, &tcp(5000), 7);
        let entry = table.choose(0, &[]).unwrap();
        assert!(table.take(0, entry) && table.take(1, entry));
        table.release_slot(0);
        table.release_slot(0);
        assert_eq!(table.sessions(0), 1);
        table.give(1, entry);
        table.release_slot(1);
        assert_eq!(table.sessions(0), 0);
        table.release_slot(7);
    }

    #[test]
    fn what_was_given_to_one_that_is_gone_is_not_counted_for_the_next() {
        let memory = memory(1, 3);
        let table = Table::new(&memory, 1);
        let socket = Address::Unix(PathBuf::from("/run/app/é.sock"));
        table.publish(0, &socket, 7);
        let old = table.choose(0, &[]).unwrap();
        assert_eq!(table.address(old), Some(socket));
        assert!(table.take(0, old) && table.take(1, old));
        table.withdraw(0);
        assert!(!table.lives(old) && table.address(old).is_none() && !table.take(2, old));
        table.publish(0, &tcp(5001), 8);
        assert_eq!(table.pid(old), 0);
        let new = table.choose(0, &[]).unwrap();
        assert_eq!(table.pid(new), 8);
        assert!(table.take(2, new));
        table.give(0, old);
        table.release_slot(1);
        assert_eq!((table.sessions(0), table.address(old)), (1, None));
        assert_eq!(table.address(new), Some(tcp(5001)));
    }

    #[test]
    fn nonsense_in_the_memory_is_harmless() {
        let memory = memory(2, 2);
        memory
            .iter()
            .for_each(|word| word.store(u64::MAX, Ordering::SeqCst));
        let table = Table::new(&memory, 2);
        let entry = table.choose(5, &[]).unwrap();
        assert_eq!(table.address(entry), None);
        assert!(!table.take(0, entry));
        table.release_slot(0);
        assert!(!table.publish(9, &tcp(1), 7));
        let long = Address::Unix(PathBuf::from(format!("/{}", "x".repeat(MOST_TEXT_BYTES))));
        assert!(!table.publish(0, &long, 7));
    }

    #[test]
    fn a_failure_is_told_until_a_process_is_up() {
        let memory = memory(1, 1);
        let table = Table::new(&memory, 1);
        assert_eq!(table.failure(), None);
        table.set_failure(Some(0));
        assert_eq!(table.failure(), Some(0));
        table.set_failure(Some(0xFFFF_FFFF));
        assert_eq!(table.failure(), Some(0xFFFF_FFFF));
        table.publish(0, &tcp(1), 7);
        assert_eq!(table.failure(), None);
    }
}
