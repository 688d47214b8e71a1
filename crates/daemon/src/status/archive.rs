//! The last two weeks of pools: when the master copies minutes from the scoreboards, and the memory for the next master.

use crate::context::Context;
use crate::context::handover::Named;
use crate::context::pools::Pools;
use crate::context::refused::Refused;
use forkyard_base::descriptor::Kind;
use forkyard_base::tick::Tick;
use forkyard_protocol::handover::names;
use forkyard_protocol::history::{History, Minute, Period};
use forkyard_scoreboard::Archive;
use forkyard_scoreboard::archive::PAGES;
use forkyard_scoreboard::minutes::minute_of;
use forkyard_sys::{clock, inherited};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A scoreboard has a row of a minute for an hour, so that each ten minutes are complete for 50.
const INTERVAL: Duration = Duration::from_secs(40 * 60);

#[derive(Debug, Default)]
pub(crate) struct PastHours {
    /// `None`: no pool had a request, or there is no memory.
    archive: Option<Archive>,
    /// When the next copy is due; `None` before the first: the previous master may have copied long ago.
    next: Option<Tick>,
    has_failed: bool,
}

impl PastHours {
    /// Takes over the previous master's memory.
    pub(crate) fn adopt(&mut self, memory: Option<OwnedFd>) {
        let is_whole = |memory: &OwnedFd| inherited::kind(memory.as_fd()) == Kind::Memory(PAGES);
        match memory.filter(is_whole).map(Archive::adopt).transpose() {
            Ok(archive) => self.archive = archive.flatten(),
            Err(error) => log::error!("the history of the pools is lost: {error}"),
        }
    }

    pub(crate) fn named(&self) -> Option<Named<'_>> {
        let archive = self.archive.as_ref()?;
        Some((names::ARCHIVE.to_owned(), archive.memory()))
    }

    pub(crate) fn deadline(&self) -> Option<Tick> {
        self.next
    }

    pub(crate) fn archive(&self) -> Option<&Archive> {
        self.archive.as_ref()
    }

    pub(crate) fn poll(&mut self, context: &mut Context, now: Tick) {
        if self.next.is_none_or(|next| next <= now) {
            self.keep(context, now);
        }
    }

    /// Copies all complete tens of minutes and the present one.
    pub(crate) fn keep(&mut self, context: &mut Context, now: Tick) {
        self.next = Some(now + INTERVAL);
        let tens = context.pools.tens(minute_of(now));
        if tens.is_empty() || self.has_failed {
            return;
        }
        if self.archive.is_none() {
            match Archive::create() {
                Ok(archive) => {
                    let archive = self.archive.insert(archive);
                    context
                        .handover
                        .keep([(names::ARCHIVE.to_owned(), archive.memory())]);
                }
                Err(error) => {
                    self.has_failed = true;
                    return log::error!("the history of the pools is not kept: {error}");
                }
            }
        }
        let Some(archive) = &mut self.archive else {
            return;
        };
        for (pool, tens) in tens {
            if !archive.keep(&pool, &tens, now) {
                log::debug!("[pool {pool}] there is no room for its history");
            }
        }
    }

    /// Returns the last two weeks of a pool.
    pub(crate) fn periods(&mut self, context: &mut Context, pool: &str) -> Result<Vec<Period>, Refused> {
        if context.pools.pools_named(pool).is_empty() {
            return Err(Refused::NoPool(pool.to_owned()));
        }
        let now = clock::now();
        self.keep(context, now);
        let archive = self.archive.as_ref();
        Ok(archive.map_or_else(Vec::new, |it| it.periods(pool, now, clock::epoch_seconds())))
    }
}

impl Pools {
    /// Returns the tens of minutes of all pools with requests in the last hour.
    fn tens(&self, minute: u64) -> HashMap<String, Vec<Minute>> {
        let mut sums: HashMap<&str, History> = HashMap::new();
        for generation in self.generations.values() {
            if let Some(resources) = &generation.resources {
                let sum = sums.entry(self.shown_with(generation)).or_default();
                sum.add(&resources.board.history());
            }
        }
        for pool in self.by_id.values().filter(|pool| pool.listener.is_some()) {
            let sum = sums.entry(&pool.name).or_default();
            sum.add(&self.past(&pool.name).numbers.history);
        }
        let tens = sums.into_iter();
        let tens = tens.map(|(pool, sum)| (pool.to_owned(), sum.tens(minute)));
        tens.filter(|(_, tens)| !tens.is_empty()).collect()
    }
}
