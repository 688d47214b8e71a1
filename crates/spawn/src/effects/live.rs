//! A journey's resources and the events of its process.

use super::looks::Look;
use super::memory;
use super::own_socket::OwnDirectory;
use super::remains::SocketFile;
use super::{Effects, Watched, family};
use crate::capture::Capture;
use crate::error::{Ended, Fault};
use crate::event::{JourneyEvent, JourneyId};
use crate::handshake::response::Response;
use crate::plan::Plan;
use crate::step::Route;
use crate::workdir::WorkDirectory;
use forkyard_sys::guarded::Guarded;
use forkyard_sys::socket::Progress;
use forkyard_sys::{clock, pidfd};
use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

const MOST_READS: u32 = 16;
/// How often a killed process group is polled. The machine polls every few milliseconds.
const MOST_LOOKS: u32 = 20;
const CHUNK: usize = 8192;

#[derive(Debug)]
pub(super) struct Live {
    pub(super) plan: Arc<Plan>,
    pub(super) route: Route,
    pub(super) directory: Option<WorkDirectory>,
    pub(super) port: Option<u16>,
    /// Reserves the port until the fork.
    pub(super) held: Option<OwnedFd>,
    pub(super) own: Option<OwnDirectory>,
    pub(super) input: Option<OwnedFd>,
    pub(super) output: Option<Guarded>,
    pub(super) finish: Option<OwnedFd>,
    pub(super) process: Option<OwnedFd>,
    pub(super) pid: Option<i32>,
    pub(super) ended: Option<Ended>,
    pub(super) reaped: bool,
    pub(super) own_mark: Vec<u8>,
    /// The exit, if the caller reaped the process.
    pub(super) gone: Option<Ended>,
    pub(super) descriptors: Vec<(OwnedFd, RawFd)>,
    pub(super) capture: Capture,
    pub(super) ping: Option<TcpStream>,
    pub(super) oom_kills: u64,
    pub(super) looks: u32,
    /// Killed processes that outlived their parent.
    pub(super) orphans: Vec<OwnedFd>,
    pub(super) search: family::Search,
    pub(super) look: Option<Look>,
    pub(super) sockets: Vec<SocketFile>,
    pub(super) is_mute: Cell<bool>,
}

impl Live {
    pub(super) fn new(plan: Arc<Plan>, route: Route) -> Live {
        Live {
            plan,
            route,
            directory: None,
            port: None,
            held: None,
            own: None,
            input: None,
            output: None,
            finish: None,
            process: None,
            pid: None,
            ended: None,
            reaped: false,
            own_mark: Vec::new(),
            gone: None,
            descriptors: Vec::new(),
            capture: Capture::default(),
            ping: None,
            oom_kills: 0,
            looks: 0,
            orphans: Vec::new(),
            search: family::Search::default(),
            look: None,
            sockets: Vec::new(),
            is_mute: Cell::default(),
        }
    }

    pub(super) fn complete(&self, response: Response) -> Response {
        let killed = self.ended.is_some_and(Ended::is_by_force);
        let wall = i128::from(clock::epoch_seconds()) * 1_000_000_000;
        Response {
            output: self.capture.text(),
            out_of_memory: killed && memory::oom_kills(self.plan.cgroup.as_deref()) > self.oom_kills,
            wall_ahead_ns: wall - i128::from(clock::now().as_nanos()),
            ..response
        }
    }

    /// The variable that only its processes have in their environment.
    pub(super) fn mark(&self) -> Option<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        let path = self.directory.as_ref()?.path().as_os_str().as_bytes();
        Some([b"FORKYARD_SPAWN_WORK_DIR=", path].concat())
    }

    /// The ports on which it listens. Empty if no port was assigned. May block.
    pub(super) fn listens_on(&self) -> BTreeSet<u16> {
        let pid = self.pid.filter(|_| self.port.is_some() && self.ended.is_none());
        let mark = self.mark().unwrap_or_default();
        pid.map(|pid| family::ports(pid, &mark)).unwrap_or_default()
    }
}

impl Effects {
    pub(super) fn read_output(&mut self, id: JourneyId) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let Some(output) = live.output.take() else {
            return;
        };
        let mut chunk = [0; CHUNK];
        for _ in 0..MOST_READS {
            match output.receive(&mut chunk) {
                Ok(Progress::Done(count)) if count > 0 => {
                    live.capture.push(&chunk[..count]);
                    (self.sink)(id, &chunk[..count]);
                }
                Ok(Progress::WouldBlock) => {
                    live.output = Some(output);
                    return;
                }
                Ok(Progress::Done(_)) | Err(_) => {
                    let _ = self.registry.deregister(&mut SourceFd(&output.as_raw_fd()));
                    self.tell(id, JourneyEvent::OutputEnded);
                    return;
                }
            }
        }
        // More output is available. Registering again triggers an event, but other processes get their turn first.
        live.output = Some(output);
        self.watch_again(id, Watched::Output);
    }

    fn watch_again(&mut self, id: JourneyId, watched: Watched) {
        let token = self.token(id, watched);
        let Some(output) = self.live.get(&id).and_then(|live| live.output.as_ref()) else {
            return;
        };
        let fd = output.as_raw_fd();
        let _ = self
            .registry
            .reregister(&mut SourceFd(&fd), token, Interest::READABLE);
    }

    pub(super) fn read_finish(&mut self, id: JourneyId) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let Some(finish) = &live.finish else { return };
        let mut byte = [0; 1];
        let event = match nix::unistd::read(finish, &mut byte) {
            Ok(0) => JourneyEvent::Finish(None),
            Ok(_) => JourneyEvent::Finish(Some(byte[0])),
            Err(Errno::EAGAIN | Errno::EINTR) => return,
            Err(errno) => JourneyEvent::FinishUnreadable(Fault {
                text: format!("read response/finish: {}", errno.desc()),
                errno: errno as i32,
            }),
        };
        if let Some(finish) = live.finish.take() {
            let _ = self.registry.deregister(&mut SourceFd(&finish.as_raw_fd()));
        }
        self.tell(id, event);
    }

    pub(super) fn exited(&mut self, id: JourneyId) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        if live.ended.is_none() {
            let Some(process) = &live.process else { return };
            live.ended = match pidfd::peek(process.as_fd()) {
                Ok(Some(ended)) => Some(ended),
                Ok(None) => return,
                // Another reaper got the exit code.
                Err(_) if pidfd::has_ended(process.as_fd()) => Some(Ended::Unknown),
                Err(_) => return,
            };
        }
        let Some(ended) = live.ended else { return };
        let process = live.process.as_ref().map(AsRawFd::as_raw_fd);
        if let Some(fd) = process {
            // An ended descriptor would stay ready forever.
            let _ = self.registry.deregister(&mut SourceFd(&fd));
        }
        if live
            .finish
            .as_ref()
            .is_some_and(|finish| polled(finish, nix::poll::PollFlags::POLLIN))
        {
            self.read_finish(id);
        }
        self.read_output(id);
        self.tell(id, JourneyEvent::Exited(ended));
    }

    pub(super) fn signal(&mut self, id: JourneyId, signal: Signal) {
        let live = self.live.get(&id);
        if let Some(process) = live.and_then(|live| live.process.as_ref()) {
            let _ = pidfd::send_signal(process.as_fd(), signal);
        }
    }

    /// Kills the process group. The pid can't be reused before the process is reaped.
    pub(super) fn kill(&mut self, id: JourneyId) {
        if let Some(live) = self.live.get(&id) {
            if let (Some(pid), false) = (live.pid, live.reaped) {
                let _ = nix::sys::signal::killpg(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        self.signal(id, Signal::SIGKILL);
    }

    pub(super) fn sweep(&mut self, id: JourneyId) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let mut left = 0;
        if let (Some(process), false) = (&live.process, live.reaped) {
            match pidfd::reap(process.as_fd()) {
                Ok(None) => left += 1,
                Ok(Some(_)) => live.reaped = true,
                Err(_) => left += usize::from(!pidfd::has_ended(process.as_fd())),
            }
        }
        if let (Some(mark), Some(pid)) = (live.mark(), live.pid) {
            // Kill the group before our children: dying group members leave their children to us. Each new child may
            // have children too, so the search is repeated. An unreaped zombie stays a group member, hence the limit.
            live.looks += u32::from(live.search.is_complete());
            let group = nix::unistd::Pid::from_raw(pid);
            let is_dying = live.looks <= MOST_LOOKS && nix::sys::signal::killpg(group, None).is_ok();
            left += usize::from(is_dying);
            let found = live.search.orphans(&mark, pid, |_| false);
            left += found.len();
            for orphan in found {
                let _ = pidfd::send_signal(orphan.as_fd(), Signal::SIGKILL);
                live.orphans.push(orphan);
            }
        }
        live.orphans.retain(|orphan| match pidfd::reap(orphan.as_fd()) {
            Ok(Some(_)) => false,
            Ok(None) => true,
            Err(_) => !pidfd::has_ended(orphan.as_fd()),
        });
        left = left.max(live.orphans.len());
        let is_whole = live.search.is_complete();
        self.tell(id, JourneyEvent::Swept { left, is_whole });
    }

    pub(super) fn ping(&mut self, id: JourneyId) {
        let token = self.token(id, Watched::Ping);
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        if let Some(mut old) = live.ping.take() {
            let _ = self.registry.deregister(&mut old);
        }
        if let Some(socket) = live.own.as_ref().map(OwnDirectory::socket) {
            return match live.ended {
                None => self.ping_own(id, socket),
                Some(_) => self.tell(id, JourneyEvent::Silent),
            };
        }
        let Some(port) = live.port else { return };
        let address = SocketAddr::new(reachable(live.plan.bind_address), port);
        match connect(address, &self.registry, token) {
            Some(stream) => live.ping = Some(stream),
            None => self.tell(id, JourneyEvent::Silent),
        }
    }

    pub(super) fn pinged(&mut self, id: JourneyId) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        let Some(mut stream) = live.ping.take() else {
            return;
        };
        let refused = matches!(stream.take_error(), Ok(Some(_)) | Err(_));
        if !refused && stream.peer_addr().is_err() {
            live.ping = Some(stream);
            return;
        }
        let _ = self.registry.deregister(&mut stream);
        let (Some(port), Some(pid)) = (live.port, live.pid) else {
            return;
        };
        match refused || live.ended.is_some() {
            true => self.tell(id, JourneyEvent::Silent),
            false => self.ask_for_owner(id, pid, port),
        }
    }
}

fn polled(fd: &OwnedFd, what: nix::poll::PollFlags) -> bool {
    let mut slot = [nix::poll::PollFd::new(fd.as_fd(), what)];
    let polled = nix::poll::poll(&mut slot, nix::poll::PollTimeout::ZERO);
    let flags = slot[0].revents();
    polled.is_ok() && flags.is_some_and(|flags| flags.contains(what))
}

fn reachable(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) if address.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) if address.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        address => address,
    }
}

fn connect(address: SocketAddr, registry: &Registry, token: mio::Token) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    registry.register(&mut stream, token, Interest::WRITABLE).ok()?;
    Some(stream)
}
