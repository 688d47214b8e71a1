//! Checks on files and processes that the application's user controls. Each check can block forever, so it runs in a
//! separate process with a deadline ([`process::Apart`]).

use super::live::Live;
use super::remains::SocketFile;
use super::{Effects, Watched, family, own_socket};
use crate::event::{JourneyEvent, JourneyId};
use crate::handshake::properties::{self, SocketOwner};
use crate::handshake::response::{Properties, Response};
use crate::journey::Journey;
use crate::step::Step;
use forkyard_base::tick::Tick;
use forkyard_sys::process::{self, Apart, ApartProgress, Finding};
use forkyard_sys::{self as sys, clock, dir};
use mio::unix::SourceFd;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(2);
const STEPS_LIMIT: Duration = Duration::from_millis(100);
/// The maximum of overdue helper processes per user. Some can't even be killed.
const MOST_OF_A_USER: usize = 16;

#[derive(Debug)]
pub(super) struct Look {
    apart: Apart,
    due: Tick,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Response,
    OwnSocket,
    Port,
}

const YES: &[u8] = b"yes";

/// Helper processes that check or clean up, and their users.
#[derive(Debug, Default)]
pub(super) struct Lookers {
    by_pid: BTreeMap<i32, Looker>,
}

#[derive(Debug)]
struct Looker {
    uid: u32,
    begun: Tick,
    clears: bool,
}

impl Lookers {
    fn begin(&mut self, uid: u32, keep: &[BorrowedFd<'_>], work: impl FnOnce() -> Finding) -> Option<Apart> {
        if !self.has_room(uid) {
            return None;
        }
        let apart = Apart::begin(keep, work);
        let apart =
            apart.inspect_err(|error| log::warn!("no process can be made to look at a start: {error}"));
        let apart = apart.ok()?;
        self.note(uid, apart.pid(), false);
        Some(apart)
    }

    pub(super) fn clear(&mut self, uid: u32, keep: &[BorrowedFd<'_>], work: impl FnOnce()) {
        if !self.has_room(uid) {
            return log::warn!(
                "the leftovers of a start of user {uid} remain: clearing others takes too long"
            );
        }
        match process::leave_apart(keep, work) {
            Ok(pid) => self.note(uid, pid, true),
            Err(error) => log::warn!("can't fork a process to clear the leftovers of a start: {error}"),
        }
    }

    fn note(&mut self, uid: u32, pid: i32, clears: bool) {
        let begun = clock::now();
        self.by_pid.insert(pid, Looker { uid, begun, clears });
    }

    fn has_room(&mut self, uid: u32) -> bool {
        self.forget_ended(Duration::ZERO);
        let now = clock::now();
        let late = self.by_pid.values();
        let late = late.filter(|one| one.uid == uid && now.since(one.begun) > LIMIT);
        late.count() < MOST_OF_A_USER
    }

    /// Reaps finished helper processes. Waits up to `limit` for cleanups. A child's pid isn't reused before it is
    /// reaped.
    fn forget_ended(&mut self, limit: Duration) {
        let end = clock::now() + limit;
        let is_there = |pid: i32, one: &Looker| {
            let left = if one.clears {
                end.since(clock::now())
            } else {
                Duration::ZERO
            };
            process::is_child(pid) && process::reap_within(pid, left).is_none()
        };
        self.by_pid.retain(|pid, one| is_there(*pid, one));
    }

    pub(super) fn reaped(&mut self, pid: i32) -> bool {
        self.by_pid.remove(&pid).is_some()
    }

    pub(super) fn settle(&mut self, limit: Duration) {
        self.forget_ended(limit);
    }
}

impl Effects {
    /// Reads the response. `Loaded` follows.
    pub(super) fn load(&mut self, id: JourneyId) {
        // The pipe may still contain the last output.
        self.read_output(id);
        let Some(live) = self.live.get(&id) else { return };
        let steps = steps_of(live);
        let top = live.directory.as_ref().map(|directory| directory.top());
        let keep: Vec<BorrowedFd<'_>> = top.into_iter().collect();
        let uid = live.plan.account.uid;
        let apart = self.lookers.begin(uid, &keep, || response(live, &steps));
        self.take_up(id, apart, What::Response);
    }

    /// Checks whether a process listens on its own socket. `Pinged` or `Silent` follows.
    pub(super) fn ping_own(&mut self, id: JourneyId, socket: PathBuf) {
        let Some(live) = self.live.get(&id) else { return };
        let uid = live.plan.account.uid;
        let apart = self.lookers.begin(uid, &[], || said(listens_at(&socket, uid)));
        self.take_up(id, apart, What::OwnSocket);
    }

    /// Checks whether the application's process owns the port. `Pinged` or `Taken` follows.
    pub(super) fn ask_for_owner(&mut self, id: JourneyId, pid: i32, port: u16) {
        let Some(live) = self.live.get(&id) else { return };
        let (uid, mark) = (live.plan.account.uid, live.mark().unwrap_or_default());
        let apart = self
            .lookers
            .begin(uid, &[], || said(family::listens(pid, &mark, port, uid)));
        self.take_up(id, apart, What::Port);
    }

    fn take_up(&mut self, id: JourneyId, apart: Option<Apart>, what: What) {
        self.forget_look(id);
        let Some(apart) = apart else {
            return self.conclude(id, what, None);
        };
        if let Err(error) = self.watch(apart.socket(), id, Watched::Look) {
            log::warn!("a look at a start can't be watched: {error}");
            return self.conclude(id, what, None);
        }
        let due = clock::now() + LIMIT;
        if let Some(live) = self.live.get_mut(&id) {
            live.look = Some(Look { apart, due, what });
        }
    }

    pub(super) fn forget_look(&mut self, id: JourneyId) {
        let look = self.live.get_mut(&id).and_then(|live| live.look.take());
        if let Some(look) = look {
            self.unwatch_look(&look);
        }
    }

    pub(super) fn unwatch_look(&self, look: &Look) {
        let _ = self
            .registry
            .deregister(&mut SourceFd(&look.apart.socket().as_raw_fd()));
    }

    pub(super) fn looked(&mut self, id: JourneyId) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let Some(look) = &mut live.look else { return };
        let finding = match look.apart.proceed() {
            ApartProgress::Working => return,
            ApartProgress::Done(finding) => Some(finding),
            ApartProgress::Lost => None,
        };
        let what = look.what;
        self.forget_look(id);
        self.conclude(id, what, finding);
    }

    pub fn next_deadline(&self) -> Option<Tick> {
        let looks = self.live.values().filter_map(|live| live.look.as_ref());
        looks.map(|look| look.due).min()
    }

    /// Abandons overdue checks.
    pub fn pass(&mut self, now: Tick) {
        let is_late = |live: &Live| live.look.as_ref().is_some_and(|look| look.due <= now);
        let late = self.live.iter().filter(|(_, live)| is_late(live));
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            // If this loop is late, the answer may already be here.
            self.looked(id);
            let Some(look) = self.live.get_mut(&id).and_then(|live| live.look.take()) else {
                continue;
            };
            self.unwatch_look(&look);
            self.conclude(id, look.what, None);
        }
    }

    fn conclude(&mut self, id: JourneyId, what: What, finding: Option<Finding>) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let is_so = finding.as_ref().is_some_and(|finding| finding.bytes == YES);
        let event = match what {
            What::Response => {
                let read = finding.and_then(|finding| serde_json::from_slice(&finding.bytes).ok());
                if read.is_none() {
                    log::warn!(
                        "the start report of {} can't be read in {LIMIT:?}",
                        live.plan.group
                    );
                }
                let (response, sockets): (Response, Vec<SocketFile>) = read.unwrap_or_default();
                live.sockets = sockets;
                JourneyEvent::Loaded(Box::new(live.complete(response)))
            }
            What::OwnSocket | What::Port if is_so => JourneyEvent::Pinged,
            What::OwnSocket => JourneyEvent::Silent,
            What::Port if finding.is_some() => JourneyEvent::Taken,
            What::Port => JourneyEvent::Silent,
        };
        self.tell(id, event);
    }

    /// The steps recorded so far. Empty if reading takes too long.
    pub(super) fn read_steps(&self, live: &Live) -> Vec<(Step, crate::handshake::response::StepFiles)> {
        let steps = steps_of(live);
        let Some(directory) = live.directory.as_ref().filter(|_| !live.is_mute.get()) else {
            return Vec::new();
        };
        let look = Apart::begin(&[directory.top()], || {
            let files = directory.steps_so_far(&steps);
            Finding::from(serde_json::to_vec(&files).unwrap_or_default())
        });
        let found = look.ok().and_then(|look| look.wait(STEPS_LIMIT));
        // One timeout is enough: later calls skip the read.
        live.is_mute.set(found.is_none());
        let files = found.and_then(|found| serde_json::from_slice(&found.bytes).ok());
        files.unwrap_or_default()
    }
}

fn steps_of(live: &Live) -> Vec<Step> {
    Journey::new(live.route, live.plan.kind.has_wrapper()).reported_steps()
}

fn said(is_so: bool) -> Finding {
    Finding::from(if is_so { YES.to_vec() } else { b"no".to_vec() })
}

fn response(live: &Live, steps: &[Step]) -> Finding {
    let directory = live.directory.as_ref();
    let contents = directory.map(|directory| directory.contents(steps));
    let contents = contents.unwrap_or_default();
    let sockets = match &contents.properties {
        Properties::Bytes(bytes) => properties::parse(bytes).unwrap_or_default(),
        Properties::Missing | Properties::TooLong => Vec::new(),
    };
    let own = live.own.as_ref().map(own_socket::OwnDirectory::socket);
    let named: Vec<&Path> = properties::to_look_at(&sockets, &live.plan)
        .chain(own.as_deref())
        .collect();
    let uid = live.plan.account.uid;
    let files = named
        .iter()
        .filter_map(|path| SocketFile::find(path.to_path_buf(), uid));
    let files: Vec<SocketFile> = files.collect();
    let found = named.iter().map(|path| {
        let found = match dir::owner(path) {
            Ok(owner) if owner.is_socket => SocketOwner::Socket { uid: owner.uid },
            Ok(_) => SocketOwner::Other,
            Err(error) => SocketOwner::Nothing(error.to_string()),
        };
        (path.to_path_buf(), found)
    });
    let response = Response {
        found: found.collect(),
        socket: own.clone(),
        port: live.port,
        listens_on: live.listens_on(),
        ..contents
    };
    Finding::from(serde_json::to_vec(&(response, files)).unwrap_or_default())
}

fn listens_at(path: &Path, uid: u32) -> bool {
    let is_own = dir::owner(path).is_ok_and(|owner| owner.is_socket && owner.uid == uid);
    // A full backlog (EAGAIN) also proves a listener.
    is_own && sys::socket::connect_unix(path).is_ok()
}
