//! Collects the inherited state and publishes it for the next program.

use super::plan::{Facts, Kind, Plan, plan};
use forkyard_config::Config;
use forkyard_protocol::handover::document::{Document, DocumentError};
use forkyard_protocol::handover::{frame, names};
use forkyard_sys::{self as sys, inherited, memfile, process};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Variables with the number of the handover descriptor. Both are set: another version may know only the second.
pub const VARIABLES: [&str; 2] = ["FORKYARD_HANDOVER", "FORKYARD_ESTATE"];

/// The state inherited from the previous master.
#[derive(Debug, Default)]
pub struct InheritedState {
    /// The document, if it is readable.
    pub document: Option<Document>,
    /// The valid part of the document.
    pub plan: Plan,
    /// The previous master's configuration.
    pub config: Option<Config>,
    /// The descriptors, by name.
    pub descriptors: HashMap<String, OwnedFd>,
    /// Listening sockets opened by a service manager.
    pub listeners: Vec<OwnedFd>,
    /// Listening sockets of the previous master without a known pool.
    pub own_listeners: Vec<OwnedFd>,
    /// Names of descriptors that the descriptor store still holds.
    pub stored: Vec<String>,
    /// The highest ids of pools, generations and workers.
    pub highest: (u32, u32, u64),
    /// Why the expected document is missing.
    pub problem: Option<UnreadableState>,
    /// Whether the keeper goes to the background when the daemon is ready.
    pub in_background: bool,
}

/// Why the previous master's state can't be read.
#[derive(Debug, thiserror::Error)]
pub enum UnreadableState {
    #[error("the document is missing")]
    Missing,
    #[error(transparent)]
    System(#[from] sys::Error),
    #[error(transparent)]
    Frame(#[from] frame::FrameError),
    #[error(transparent)]
    Parcel(#[from] serde_json::Error),
    #[error(transparent)]
    Document(#[from] DocumentError),
}

/// The contents of the handover file.
#[derive(Serialize, Deserialize)]
struct Parcel<D, C> {
    descriptors: BTreeMap<String, RawFd>,
    document: D,
    config: C,
}

/// Collects the inherited state. Call it at the start of the process; later calls return nothing.
pub fn collect() -> InheritedState {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return InheritedState::default();
    }
    let parcel = VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    process::forget_variables(&VARIABLES);
    let mut inherited = match parcel {
        Some(number) => from_parcel(number.parse().unwrap_or(-1)),
        None => from_fd_store(),
    };
    inherited.in_background = std::env::var_os(inherited::BACKGROUND).is_some();
    process::forget_variables(&inherited::VARIABLES);
    inherited
}

/// Checks whether the handover file on a descriptor is usable.
///
/// # Errors
/// It is not.
pub fn rehearse(fd: RawFd) -> Result<(), UnreadableState> {
    let parcel = inherited::adopt(fd).ok_or(UnreadableState::Missing)?;
    let (_, document, _) = open_parcel(&parcel)?;
    document?;
    Ok(())
}

/// Writes the state for the next program to a file in memory.
///
/// # Errors
/// The kernel gives no such file.
pub fn publish(
    document: &Document,
    config: &Config,
    descriptors: BTreeMap<String, RawFd>,
) -> sys::Result<OwnedFd> {
    let parcel = Parcel {
        descriptors,
        document,
        config,
    };
    // Serialising plain values to memory can't fail.
    let body = serde_json::to_vec(&parcel).unwrap_or_default();
    memfile::sealed("forkyard handover", &frame::encode(0, &body))
}

type Opened = (
    BTreeMap<String, RawFd>,
    Result<Document, DocumentError>,
    Option<Config>,
);

fn open_parcel(fd: &OwnedFd) -> Result<Opened, UnreadableState> {
    let bytes = memfile::read(fd.as_fd(), frame::MOST_BYTES)?;
    let (_, body) = frame::decode(&bytes)?;
    let parcel: Parcel<serde_json::Value, serde_json::Value> = serde_json::from_slice(body)?;
    let document = Document::decode(parcel.document.to_string().as_bytes());
    // The configuration of another version may not parse; ignore it.
    let config = serde_json::from_value(parcel.config).ok();
    Ok((parcel.descriptors, document, config))
}

fn from_parcel(number: RawFd) -> InheritedState {
    let opened = inherited::adopt(number)
        .ok_or(UnreadableState::Missing)
        .and_then(|parcel| open_parcel(&parcel));
    match opened {
        Ok((numbers, document, config)) => {
            let named = numbers
                .into_iter()
                .filter_map(|(name, fd)| Some((name, inherited::adopt(fd)?)));
            from_descriptors(named.collect(), document.map_err(UnreadableState::from), config)
        }
        // Only descriptors for the hand-over survive exec.
        Err(problem) => {
            let all = inherited::all().into_iter().enumerate();
            let named = all.map(|(number, fd)| (number.to_string(), fd));
            from_descriptors(named.collect(), Err(problem), None)
        }
    }
}

/// Returns the state stored or opened by a keeper or service manager.
fn from_fd_store() -> InheritedState {
    let ours = |name: &str| {
        names::COPIES.contains(&name) || name == names::CONFIG || names::number_in(name).is_some()
    };
    let all = inherited::from_service_manager(|name, kind| ours(name) || kind == Kind::Listener);
    let (mut stored, mut listeners) = (Vec::new(), Vec::new());
    for (name, fd) in all {
        if ours(&name) {
            stored.push((name, fd));
        } else {
            listeners.push(fd);
        }
    }
    if stored.is_empty() {
        return InheritedState {
            listeners,
            ..InheritedState::default()
        };
    }
    let names = stored.iter().map(|(name, _)| name.clone()).collect();
    let mut take = |wanted: &str| {
        let at = stored.iter().position(|(name, _)| name == wanted)?;
        memfile::read(stored.swap_remove(at).1.as_fd(), frame::MOST_BYTES).ok()
    };
    let copies = names::COPIES.map(|name| take(name).unwrap_or_default());
    let config =
        take(names::CONFIG).and_then(|bytes| serde_json::from_slice(frame::decode(&bytes).ok()?.1).ok());
    let document = Document::newest([&copies[0], &copies[1]]);
    let mut inherited = from_descriptors(stored, document.map_err(UnreadableState::from), config);
    inherited.listeners.extend(listeners);
    inherited.stored = names;
    inherited
}

/// Checks the document against the descriptors. If there is no document, only listening sockets are usable.
fn from_descriptors(
    named: Vec<(String, OwnedFd)>,
    document: Result<Document, UnreadableState>,
    config: Option<Config>,
) -> InheritedState {
    let mut inherited = InheritedState {
        config,
        ..InheritedState::default()
    };
    for name in named.iter().map(|(name, _)| name) {
        inherited.highest = names::higher(inherited.highest, name);
    }
    let is_listener = |fd: &OwnedFd| inherited::kind(fd.as_fd()) == Kind::Listener;
    let document = match document {
        Ok(document) => document,
        Err(problem) => {
            inherited.problem = Some(problem);
            let sockets = named.into_iter().map(|(_, fd)| fd);
            inherited.own_listeners = sockets.filter(is_listener).collect();
            return inherited;
        }
    };
    let workers = document.generations.iter().flat_map(|it| &it.workers);
    let facts = Facts {
        kinds: named
            .iter()
            .map(|(name, fd)| (name.clone(), inherited::kind(fd.as_fd())))
            .collect(),
        processes: workers
            .filter_map(|worker| Some((worker.pid, process::start_time(worker.pid)?)))
            .collect(),
    };
    inherited.plan = plan(&document, &facts);
    let last_worker = document
        .generations
        .iter()
        .flat_map(|it| &it.workers)
        .map(|it| it.id)
        .max();
    let (pools, generations, workers) = inherited.highest;
    inherited.highest = (
        pools.max(document.last_pool),
        generations.max(document.last_generation),
        workers.max(last_worker.unwrap_or(0)),
    );
    inherited.document = Some(document);
    for (name, fd) in named {
        // A pool may still claim a listening socket of an unknown pool.
        let is_known = inherited
            .plan
            .pools
            .iter()
            .any(|pool| names::listener(pool.id) == name);
        if is_listener(&fd) && !is_known {
            inherited.own_listeners.push(fd);
        } else {
            inherited.descriptors.insert(name, fd);
        }
    }
    inherited
}
