//! The inspector's process and its children.

use super::find::{self, Terms};
use super::protocol::{self, InspectReply, InspectRequest, MOST_BYTES, Refusal, UNASKED};
use super::queue::{Asker, ChildId, Queue, QueueAction};
use forkyard_config::Applications;
use forkyard_host::confine;
use forkyard_protocol::reason::Reason;
use forkyard_sys::fd::{receive_with, set_nonblocking, socket_pair};
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::socket::{self, Progress};
use forkyard_sys::timeout::poll_timeout;
use forkyard_sys::{Error, clock, pidfd, process, rights};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The exit code after a failed setup (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;
const QUESTIONS: usize = 16;
const MOST_UNSENT: usize = 64;

/// Answers questions until the master's socket closes, and returns the exit code. Call it in a freshly forked,
/// single-threaded process with only these sockets and the standard streams. `heartbeat`: bytes from the master that
/// must be read. `identity`: the user to become; an inspector started as root keeps the right to read all files.
pub fn run(
    router: OwnedFd,
    master: OwnedFd,
    heartbeat: Option<OwnedFd>,
    applications: &Applications,
    identity: Option<&Identity>,
) -> i32 {
    let switching = identity::is_root() && applications.user_switching;
    let terms = Terms {
        directories: applications.directories.clone(),
        restart_dir: applications.restart_dir.clone(),
        switching,
        user_mounts: applications.user_mounts,
        releases: applications.releases.as_ref().map(|it| it.link.clone()),
    };
    let done = become_inspector(identity).and_then(|()| {
        let mut inspector = Inspector {
            askers: [AskerSocket::new(router), AskerSocket::new(master)],
            queue: Queue::new(terms.directories.clone()),
            terms,
            children: BTreeMap::new(),
            heartbeat,
            names: RandomState::new(),
        };
        inspector.serve()
    });
    match done {
        Ok(()) => 0,
        Err(error) => {
            log::error!("the inspector ends: {error}");
            EXIT_SOFTWARE
        }
    }
}

fn become_inspector(identity: Option<&Identity>) -> Result<(), Error> {
    if let (Some(identity), true) = (identity, identity::is_root()) {
        if !rights::become_reader(identity)? {
            log::warn!(
                "the inspector sees only what user {} sees: the daemon was started without CAP_DAC_READ_SEARCH",
                identity.uid
            );
        }
    }
    identity::give_up_new_privileges()?;
    identity::forbid_dumps()?;
    identity::limit("fsize", Some(0), Some(0))?;
    identity::limit_core(Some(0))?;
    // A change of user clears this setting.
    process::kill_if_orphaned();
    for missing in confine::only_look() {
        log::debug!("the inspector is confined less than it could be: {missing}");
    }
    Ok(())
}

struct AskerSocket {
    socket: Option<OwnedFd>,
    unsent: VecDeque<Vec<u8>>,
}

impl AskerSocket {
    fn new(socket: OwnedFd) -> AskerSocket {
        AskerSocket {
            socket: Some(socket),
            unsent: VecDeque::new(),
        }
    }

    fn push(&mut self) {
        while let (Some(socket), Some(message)) = (&self.socket, self.unsent.front()) {
            match socket::send(socket.as_fd(), message) {
                Ok(Progress::Done(_)) => {
                    self.unsent.pop_front();
                }
                Ok(Progress::WouldBlock) => return,
                Err(_) => self.close(),
            }
        }
    }

    fn close(&mut self) {
        self.socket = None;
        self.unsent.clear();
    }
}

struct Child {
    process: OwnedFd,
    socket: OwnedFd,
}

#[derive(Debug, Clone, Copy)]
enum PollSource {
    Asker(Asker),
    Answer(ChildId),
    Exit(ChildId),
    Heartbeat,
}

struct Inspector {
    askers: [AskerSocket; 2],
    queue: Queue,
    terms: Terms,
    children: BTreeMap<ChildId, Child>,
    heartbeat: Option<OwnedFd>,
    names: RandomState,
}

impl Inspector {
    fn serve(&mut self) -> Result<(), Error> {
        while self.askers[Asker::Master as usize].socket.is_some() {
            let mut actions = Vec::new();
            for (source, flags) in self.wait()? {
                self.take_up(source, flags, &mut actions);
            }
            self.queue.late(clock::now(), &mut actions);
            self.perform(actions);
        }
        Ok(())
    }

    fn wait(&self) -> Result<Vec<(PollSource, PollFlags)>, Error> {
        let mut sources = Vec::new();
        let mut polled: Vec<PollFd<'_>> = Vec::new();
        for asker in Asker::ALL {
            let line = &self.askers[asker as usize];
            let Some(socket) = &line.socket else { continue };
            let mut wanted = PollFlags::empty();
            // Don't read from a client that doesn't read its answers.
            wanted.set(PollFlags::POLLOUT, !line.unsent.is_empty());
            wanted.set(
                PollFlags::POLLIN,
                line.unsent.is_empty() && self.queue.has_room(asker),
            );
            sources.push(PollSource::Asker(asker));
            polled.push(PollFd::new(socket.as_fd(), wanted));
        }
        for (id, child) in &self.children {
            sources.push(PollSource::Answer(*id));
            polled.push(PollFd::new(child.socket.as_fd(), PollFlags::POLLIN));
            sources.push(PollSource::Exit(*id));
            polled.push(PollFd::new(child.process.as_fd(), PollFlags::POLLIN));
        }
        if let Some(heartbeat) = &self.heartbeat {
            sources.push(PollSource::Heartbeat);
            polled.push(PollFd::new(heartbeat.as_fd(), PollFlags::POLLIN));
        }
        let due = self.queue.next_deadline();
        let timeout = due.map_or(PollTimeout::NONE, |due| poll_timeout(due.since(clock::now())));
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("poll", "", errno)),
        }
        let ready = sources.iter().zip(&polled).filter_map(|(source, polled)| {
            let flags = polled.revents().unwrap_or(PollFlags::POLLERR);
            (!flags.is_empty()).then_some((*source, flags))
        });
        Ok(ready.collect())
    }

    fn take_up(&mut self, source: PollSource, flags: PollFlags, actions: &mut Vec<QueueAction>) {
        match source {
            PollSource::Asker(asker) => self.hear(asker, flags, actions),
            PollSource::Heartbeat => {
                _ = self
                    .heartbeat
                    .take_if(|heartbeat| socket::drain(heartbeat.as_fd()).is_err())
            }
            PollSource::Answer(id) => self.hear_child(id, actions),
            PollSource::Exit(id) => {
                if let Some(child) = self.children.remove(&id) {
                    let _ = pidfd::reap(child.process.as_fd());
                    self.queue.gone(id, clock::now(), actions);
                }
            }
        }
    }

    fn hear(&mut self, asker: Asker, flags: PollFlags, actions: &mut Vec<QueueAction>) {
        let line = &mut self.askers[asker as usize];
        if flags.contains(PollFlags::POLLHUP) {
            line.close();
            return;
        }
        line.push();
        let mut buffer = vec![0; MOST_BYTES];
        for _ in 0..QUESTIONS {
            let Some(socket) = line.socket.as_ref().filter(|_| self.queue.has_room(asker)) else {
                break;
            };
            match socket::receive(socket.as_fd(), &mut buffer) {
                // Only poll(2) reports end of file. An empty message counts as invalid.
                Ok(Progress::Done(count)) => match protocol::decode::<InspectRequest>(&buffer[..count]) {
                    Some(look) => self.queue.ask(asker, look, clock::now(), actions),
                    None => log::debug!("a question of {count} bytes that is none"),
                },
                Ok(Progress::WouldBlock) => break,
                Err(_) => line.close(),
            }
        }
    }

    fn hear_child(&mut self, id: ChildId, actions: &mut Vec<QueueAction>) {
        let Some(child) = self.children.get(&id) else {
            return;
        };
        let mut buffer = vec![0; MOST_BYTES];
        if let Ok(Progress::Done(count)) = socket::receive(child.socket.as_fd(), &mut buffer) {
            match protocol::decode::<InspectReply>(&buffer[..count]) {
                Some(seen) => self.queue.answered(id, seen, clock::now(), actions),
                None => kill(child),
            }
        }
    }

    fn perform(&mut self, actions: Vec<QueueAction>) {
        let mut pending = VecDeque::from(actions);
        while let Some(action) = pending.pop_front() {
            let mut more = Vec::new();
            match action {
                QueueAction::Start(id) => match self.start() {
                    Ok(child) => {
                        self.children.insert(id, child);
                    }
                    Err(error) => log::error!("can't start a process that looks: {error}"),
                },
                QueueAction::Give(id, look) => {
                    let message = protocol::encode(&look).unwrap_or_default();
                    let sent = self
                        .children
                        .get(&id)
                        .map(|child| socket::send(child.socket.as_fd(), &message));
                    match sent {
                        Some(Ok(Progress::Done(_))) => {}
                        Some(_) => self.children.get(&id).into_iter().for_each(kill),
                        None => self.queue.gone(id, clock::now(), &mut more),
                    }
                }
                QueueAction::Kill(id) => self.children.get(&id).into_iter().for_each(kill),
                QueueAction::Answer(asker, seen) => self.answer(asker, seen),
            }
            pending.extend(more);
        }
    }

    /// Sends an answer. The master also receives the router's refusals, because it keeps the reports.
    fn answer(&mut self, asker: Asker, mut seen: InspectReply) {
        if let (Err(why), Some(refusal)) = (&seen.found, &mut seen.refusal) {
            refusal.id = self.id(&refusal.root, &why.0);
        }
        self.send(asker, &seen);
        if asker == Asker::Router && seen.refusal.is_some() {
            let number = UNASKED;
            self.send(Asker::Master, &InspectReply { number, ..seen });
        }
    }

    fn send(&mut self, asker: Asker, seen: &InspectReply) {
        let line = &mut self.askers[asker as usize];
        if seen.number != UNASKED || line.unsent.len() < MOST_UNSENT {
            line.unsent.extend(protocol::encode(seen));
        }
        line.push();
    }

    /// The error id: stable for the same error, and unpredictable.
    fn id(&self, root: &Path, why: &str) -> u32 {
        (self.names.hash_one((root, why)) & u64::from(u32::MAX)) as u32
    }

    fn start(&self) -> Result<Child, Error> {
        let (socket, theirs) = socket_pair(SockType::SeqPacket)?;
        set_nonblocking(theirs.as_fd(), false)?;
        let keep = [theirs.as_raw_fd()];
        let pid = process::fork_child(&keep, || look_for(&theirs, &self.terms))?;
        Ok(Child {
            process: pidfd::open(pid)?,
            socket,
        })
    }
}

fn kill(child: &Child) {
    let _ = pidfd::send_signal(child.process.as_fd(), Signal::SIGKILL);
}

fn look_for(socket: &OwnedFd, terms: &Terms) -> i32 {
    process::kill_if_orphaned();
    let mut buffer = vec![0; MOST_BYTES];
    while let Some(look) = next(socket.as_fd(), &mut buffer) {
        let number = look.number;
        let (found, refusal) = match find::inspect(&look.root, look.link.as_deref(), terms) {
            Ok(found) => (Ok(found), None),
            Err(refused) => (Err(Reason(refused.why.to_string())), refused.refusal),
        };
        let owner = found.as_ref().map_or_else(
            |_| refusal.as_ref().and_then(|refusal| refusal.owner),
            |found| Some(found.owner),
        );
        let mut seen = InspectReply {
            number,
            found,
            is_unknown: false,
            refusal,
        };
        let answer = protocol::encode(&seen).or_else(|| {
            let shown = look.root.display();
            seen.found = Err(Reason(format!(
                "{shown}: its description is longer than {MOST_BYTES} bytes; shorten it"
            )));
            seen.refusal = Some(Refusal::of(&look.root, owner));
            protocol::encode(&seen)
        });
        let sent = nix::sys::socket::send(
            socket.as_raw_fd(),
            &answer.unwrap_or_default(),
            nix::sys::socket::MsgFlags::MSG_NOSIGNAL,
        );
        if sent.is_err() {
            return EXIT_SOFTWARE;
        }
    }
    0
}

fn next(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Option<InspectRequest> {
    loop {
        match receive_with(socket, buffer, true) {
            Ok(received) => return protocol::decode(&buffer[..received.bytes]),
            Err(error) if error.errno == Errno::EINTR => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
