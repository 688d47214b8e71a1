//! What is known of applications' roots, as requests name them.
//!
//! A look is good for `stat_throttle_rate`; the first request after that has the root looked at again, and waits for it, so
//! that it finds what is there: a restart file, another target of a symbolic link. Several that come meanwhile wait for
//! the same look.

use super::settings::{self, Bounds};
use crate::applications::{FileState, Options, RestartFiles};
use crate::inspector::protocol::{FoundApplication, InspectReply, InspectRequest, Kind, Refusal, Settings};
use crate::origin::Origin;
use crate::tick::Tick;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Roots that are remembered; those that were looked at longest ago are forgotten first.
const MOST: usize = 32_768;
/// Looks that may be under way at a time.
const MOST_LOOKS: usize = 1_024;
/// Bytes of a root (Linux has PATH_MAX 4096).
const LONGEST: usize = 4_096;
/// How long it is remembered at least that there is no application.
const LEAST_REFUSAL: Duration = Duration::from_secs(1);
/// How often the log says that a root is no application.
const SAY_INTERVAL: Duration = Duration::from_secs(60);

/// An application.
#[derive(Debug, PartialEq)]
pub(super) struct Known {
    /// Its name in the pool: its real root.
    pub name: Arc<str>,
    pub kind: Kind,
    /// The user whose it is.
    pub owner: u32,
    /// Its settings.
    pub options: Options,
    /// What it says of itself that they are made of.
    pub own: Settings,
}

/// A directory that is there and is not run.
#[derive(Debug, PartialEq)]
pub(super) struct Refused {
    pub refusal: Refusal,
    /// Why: names the path and what would be right.
    pub why: String,
}

/// What is known of a root.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Lookup {
    /// This is the application.
    Known(Arc<Known>),
    /// There is none.
    Refused(Option<Arc<Refused>>),
    /// It is being looked at; the connections that wait are named when that is done. `Some`: the inspector is to be
    /// asked this.
    Wait(Option<InspectRequest>),
    /// Too many looks are under way.
    Busy,
}

/// What a look has brought.
#[derive(Debug, PartialEq)]
pub(super) struct Inspected {
    /// Of what.
    pub root: PathBuf,
    /// The application. `None`: there is none.
    pub known: Option<Arc<Known>>,
    /// Why not, of a directory that is there or could not be looked at.
    pub refused: Option<Arc<Refused>>,
    /// Its restart files.
    pub restart_files: RestartFiles,
    /// What it is made of.
    pub origin: Option<Origin>,
    /// It was looked at. If not, the application is what was known before, and nothing is known of its files.
    pub looked: bool,
    /// What the log is to say about it.
    pub say: Option<String>,
    /// The connections that wait for it.
    pub waiting: Vec<u64>,
}

#[derive(Debug, Default)]
struct AppEntry {
    known: Option<Option<Arc<Known>>>,
    /// Why there is none.
    refused: Option<Arc<Refused>>,
    looked: Tick,
    /// The number of a look that is under way.
    asked: Option<u64>,
    waiting: Vec<u64>,
    said: Option<Tick>,
}

/// All roots.
#[derive(Debug, Default)]
pub(super) struct AppIndex {
    entries: HashMap<Box<[u8]>, AppEntry>,
    looks: HashMap<u64, Box<[u8]>>,
    next: u64,
}

/// Whether a root can be one at all.
pub(super) fn is_possible(root: &[u8]) -> bool {
    root.first() == Some(&b'/')
        && root.len() <= LONGEST
        && !root.contains(&0)
        && std::str::from_utf8(root).is_ok()
}

impl AppIndex {
    /// What is there, for `who`. `rate`: how long a look is good (`stat_throttle_rate`). What the next look sees of `restart.txt`
    /// goes to `take_restart_files` in `crates/core/src/applications/restart.rs`.
    pub(super) fn ask(&mut self, root: &[u8], who: u64, rate: Duration, now: Tick) -> Lookup {
        if !self.entries.contains_key(root) {
            if self.entries.len() >= MOST {
                self.forget_oldest();
            }
            self.entries.insert(root.into(), AppEntry::default());
        }
        let Some(entry) = self.entries.get_mut(root) else {
            return Lookup::Busy;
        };
        if let Some(known) = &entry.known {
            let good = match known {
                Some(_) => rate,
                None => rate.max(LEAST_REFUSAL),
            };
            if !good.is_zero() && now.since(entry.looked) < good {
                return match known {
                    Some(known) => Lookup::Known(Arc::clone(known)),
                    None => Lookup::Refused(entry.refused.clone()),
                };
            }
        }
        if entry.asked.is_some() {
            entry.waiting.push(who);
            return Lookup::Wait(None);
        }
        if self.looks.len() >= MOST_LOOKS {
            return Lookup::Busy;
        }
        self.next += 1;
        entry.asked = Some(self.next);
        entry.waiting.push(who);
        self.looks.insert(self.next, root.into());
        Lookup::Wait(Some(InspectRequest {
            number: self.next,
            root: PathBuf::from(OsStr::from_bytes(root)),
        }))
    }

    /// Whether a look at it is under way.
    pub(super) fn is_looked_at(&self, root: &[u8]) -> bool {
        self.entries.get(root).is_some_and(|entry| entry.asked.is_some())
    }

    /// What was known before of a root whose look takes too long.
    pub(super) fn before(&self, root: &[u8]) -> Option<Arc<Known>> {
        self.entries.get(root)?.known.clone().flatten()
    }

    /// The inspector has answered. `None`: that was not asked.
    pub(super) fn seen(&mut self, seen: InspectReply, pool: &Bounds, now: Tick) -> Option<Inspected> {
        let root = self.looks.remove(&seen.number)?;
        let entry = self.entries.get_mut(&root)?;
        entry.asked = None;
        let waiting = std::mem::take(&mut entry.waiting);
        if !seen.is_unknown {
            entry.looked = now;
        }
        let origin = seen.found.as_ref().ok().and_then(|found| found.origin.clone());
        let refused = seen.found.as_ref().err().zip(seen.refusal);
        let refused = refused.map(|(why, refusal)| {
            let why = why.clone();
            Arc::new(Refused { refusal, why })
        });
        let (known, restart_files, say) = match seen.found {
            Ok(found) => match known(&found, pool) {
                Some(known) => (Some(known), restart_files(&found), None),
                None => (
                    None,
                    RestartFiles::default(),
                    Some("its path is not UTF-8".to_owned()),
                ),
            },
            Err(why) => (None, RestartFiles::default(), Some(why)),
        };
        let is_due = say.is_some() && entry.said.is_none_or(|said| now.since(said) >= SAY_INTERVAL);
        if is_due {
            entry.said = Some(now);
        }
        let say = say.filter(|_| is_due).map(|why| {
            let root = String::from_utf8_lossy(&root);
            let id = refused
                .as_ref()
                .map(|it| format!(" (error {:08x})", it.refusal.id));
            format!("{}: {why}{}", root.escape_debug(), id.unwrap_or_default())
        });
        if seen.is_unknown {
            // The earlier result is still valid.
            let known = entry.known.clone().flatten();
            return Some(Inspected {
                root: PathBuf::from(OsStr::from_bytes(&root)),
                looked: false,
                known,
                refused,
                restart_files,
                origin: None,
                say,
                waiting,
            });
        }
        // The same value as before, so that a comparison of addresses is enough.
        let same = entry
            .known
            .clone()
            .flatten()
            .filter(|before| Some(before.as_ref()) == known.as_ref());
        let known = same.or(known.map(Arc::new));
        entry.known = Some(known.clone());
        entry.refused.clone_from(&refused);
        Some(Inspected {
            root: PathBuf::from(OsStr::from_bytes(&root)),
            known,
            refused,
            looked: true,
            restart_files,
            origin,
            say,
            waiting,
        })
    }

    /// The inspector that was asked is gone: what it owes is asked again.
    pub(super) fn unanswered(&self) -> Vec<InspectRequest> {
        let unanswered = self.looks.iter().map(|(number, root)| InspectRequest {
            number: *number,
            root: PathBuf::from(OsStr::from_bytes(root)),
        });
        unanswered.collect()
    }

    /// The settings of all applications that are known, in a pool with these.
    pub(super) fn settings(&self, pool: &Bounds) -> HashMap<Arc<str>, Options> {
        let known = self
            .entries
            .values()
            .filter_map(|entry| entry.known.clone().flatten());
        let one = |known: Arc<Known>| {
            let options = pool.options_of(known.owner, known.kind, &known.own);
            (Arc::clone(&known.name), options)
        };
        known.map(one).collect()
    }

    /// The settings have changed: nothing that was seen is good any more.
    pub(super) fn look_anew(&mut self) {
        self.entries.retain(|_, entry| entry.asked.is_some());
        for entry in self.entries.values_mut() {
            entry.known = None;
        }
    }

    /// Forgets a quarter, those that were looked at longest ago.
    fn forget_oldest(&mut self) {
        let mut looked: Vec<Tick> = self.entries.values().map(|entry| entry.looked).collect();
        let at = looked.len() / 4;
        let (_, limit, _) = looked.select_nth_unstable(at);
        let limit = *limit;
        self.entries
            .retain(|_, entry| entry.asked.is_some() || entry.looked > limit);
    }
}

fn known(found: &FoundApplication, pool: &Bounds) -> Option<Known> {
    let name = found.root.to_str()?;
    let own = found.settings.as_ref().map(settings::limits).unwrap_or_default();
    Some(Known {
        name: Arc::from(name),
        options: pool.options_of(found.owner.0, found.kind, &own),
        kind: found.kind,
        owner: found.owner.0,
        own,
    })
}

fn restart_files(found: &FoundApplication) -> RestartFiles {
    let restart = found
        .restart
        .map(|(modified_ns, inode)| FileState { modified_ns, inode });
    RestartFiles {
        restart,
        always: found.always_restart,
    }
}

#[cfg(test)]
#[path = "app_index_tests.rs"]
mod tests;
