//! A cache of applications by the root that requests name.
//!
//! An inspection is valid for `stat_throttle_rate`. The first request after that waits for a new inspection, so that it
//! sees a changed restart file or link. Other requests for the root wait for the same inspection.

use super::settings::{self, Bounds};
use crate::inspector::protocol::{FoundApplication, InspectReply, InspectRequest, Kind, Refusal, Settings};
use forkyard_base::origin::Origin;
use forkyard_base::tick::Tick;
use forkyard_core::applications::{FileState, Options, RestartFiles};
use forkyard_protocol::reason::Reason;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const MOST: usize = 32_768;
const MOST_LOOKS: usize = 1_024;
const LONGEST: usize = 4_096;
const LEAST_REFUSAL: Duration = Duration::from_secs(1);
const SAY_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, PartialEq)]
pub(super) struct Known {
    pub name: Arc<str>,
    pub kind: Kind,
    pub owner: u32,
    pub options: Options,
    pub own: Settings,
    /// The link that names the application, if its releases change places behind one.
    pub link: Option<Arc<str>>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Refused {
    pub refusal: Refusal,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Lookup {
    Known(Arc<Known>),
    /// With the reason, if the directory exists.
    Refused(Option<Arc<Refused>>),
    /// An inspection is in progress; its result lists the waiting connections. Contains the question if one must be
    /// sent.
    Wait(Option<InspectRequest>),
    Busy,
}

#[derive(Debug, PartialEq)]
pub(super) struct Inspected {
    pub root: PathBuf,
    pub known: Option<Arc<Known>>,
    pub refused: Option<Arc<Refused>>,
    pub restart_files: RestartFiles,
    /// The identity of root and startup file.
    pub origin: Option<Origin>,
    /// `false` if the inspection failed. Then `known` is the earlier result.
    pub looked: bool,
    pub say: Option<String>,
    pub waiting: Vec<u64>,
}

#[derive(Debug, Default)]
struct AppEntry {
    known: Option<Option<Arc<Known>>>,
    refused: Option<Arc<Refused>>,
    looked: Tick,
    asked: Option<u64>,
    waiting: Vec<u64>,
    said: Option<Tick>,
}

#[derive(Debug, Default)]
pub(super) struct AppIndex {
    entries: HashMap<Box<[u8]>, AppEntry>,
    looks: HashMap<u64, Box<[u8]>>,
    next: u64,
}

pub(super) fn is_possible(root: &[u8]) -> bool {
    root.first() == Some(&b'/')
        && root.len() <= LONGEST
        && !root.contains(&0)
        && std::str::from_utf8(root).is_ok()
}

impl AppIndex {
    /// Looks up a root for connection `who`. `rate`: the validity of an inspection (`stat_throttle_rate`). Changes of
    /// `restart.txt` go to `take_restart_files` in `crates/core/src/applications/restart.rs`.
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
        Lookup::Wait(Some(question(self.next, root)))
    }

    pub(super) fn is_looked_at(&self, root: &[u8]) -> bool {
        self.entries.get(root).is_some_and(|entry| entry.asked.is_some())
    }

    pub(super) fn before(&self, root: &[u8]) -> Option<Arc<Known>> {
        self.entries.get(root)?.known.clone().flatten()
    }

    /// Returns an application by its name, which requests may give in other forms.
    pub(super) fn named(&self, name: &str) -> Option<Arc<Known>> {
        let is_it = |known: &Arc<Known>| *known.name == *name;
        let all = || self.entries.values().filter_map(|entry| entry.known.clone()?);
        self.before(name.as_bytes())
            .filter(is_it)
            .or_else(|| all().find(is_it))
    }

    /// Handles an answer. Returns `None` if the question is unknown.
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
            let why = why.0.clone();
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
            Err(Reason(why)) => (None, RestartFiles::default(), Some(why)),
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
        let known = if seen.is_unknown {
            entry.known.clone().flatten()
        } else {
            let known = known.map(Arc::new);
            entry.known = Some(known.clone());
            entry.refused.clone_from(&refused);
            known
        };
        Some(Inspected {
            root: PathBuf::from(OsStr::from_bytes(&root)),
            known,
            refused,
            looked: !seen.is_unknown,
            restart_files,
            origin: origin.filter(|_| !seen.is_unknown),
            say,
            waiting,
        })
    }

    pub(super) fn unanswered(&self) -> Vec<InspectRequest> {
        let looks = self.looks.iter();
        looks.map(|(number, root)| question(*number, root)).collect()
    }

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

    /// Invalidates all results after a settings change.
    pub(super) fn look_anew(&mut self) {
        self.entries.retain(|_, entry| entry.asked.is_some());
        for entry in self.entries.values_mut() {
            entry.known = None;
        }
    }

    fn forget_oldest(&mut self) {
        let mut looked: Vec<Tick> = self.entries.values().map(|entry| entry.looked).collect();
        let at = looked.len() / 4;
        let (_, limit, _) = looked.select_nth_unstable(at);
        let limit = *limit;
        self.entries
            .retain(|_, entry| entry.asked.is_some() || entry.looked > limit);
    }
}

fn question(number: u64, root: &[u8]) -> InspectRequest {
    let root = PathBuf::from(OsStr::from_bytes(root));
    InspectRequest {
        number,
        root,
        link: None,
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
        link: found.link.as_ref().and_then(|link| link.to_str()).map(Arc::from),
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
