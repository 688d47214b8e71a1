//! Router and inspector: their start, and their messages over datagram sockets.

use super::super::helper::{own_user, zone};
use super::super::output::{Lines, PipeRead};
use super::super::sources::Source;
use super::super::{Applications, Context, Executor, Pools, Who};
use super::{AppPool, Sockets};
use crate::config::{FALLBACK_USER, OWN_USER, Pool};
use crate::helper::Role;
use crate::inspector::protocol;
use crate::life::{Helper, Rules};
use crate::logs::parse_message;
use crate::master::event::PoolId;
use crate::master::heartbeat::{Activity, Heartbeat, HeartbeatAction, Sample};
use crate::router::messages::{Instance, ToMaster, ToRouter};
use crate::sys::Error;
use crate::sys::fd::{send_with, socket_pair};
use crate::sys::guarded::{Guarded, receive_bytes};
use crate::sys::identity::{self, Identity};
use crate::sys::socket::Progress;
use crate::sys::{clock, fd, process, socket};
use crate::tick::Tick;
use mio::Interest;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

const LOOKS: usize = 64;
/// The most messages that wait for a router; one that reads nothing is killed.
const MOST_UNSENT: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::master) enum Which {
    Router,
    Inspector,
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Which::Router => "router",
            Which::Inspector => "inspector",
        })
    }
}

#[derive(Debug)]
pub(super) struct HelperProcess {
    pub(super) life: Helper,
    pub(super) process: Option<RunningHelper>,
    /// It was killed to be replaced.
    pub(super) is_outdated: bool,
}

#[derive(Debug)]
pub(super) struct RunningHelper {
    pid: i32,
    pub(super) channel: Option<Guarded>,
    pub(super) messages: Lines,
    unsent: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    heartbeat: Heartbeat,
    heartbeat_in: Guarded,
    clock: Option<clock::ProcessClock>,
}

impl HelperProcess {
    fn new(now: Tick) -> HelperProcess {
        HelperProcess {
            life: Helper::new(Rules::ROUTER, now),
            process: None,
            is_outdated: false,
        }
    }

    pub(super) fn pid(&self) -> Option<i32> {
        self.process.as_ref().map(|process| process.pid)
    }

    pub(super) fn heartbeat_deadline(&self) -> Option<Tick> {
        self.process.as_ref().map(|process| process.heartbeat.deadline())
    }

    pub(super) fn check_heartbeat(&mut self, now: Tick) -> Option<&'static str> {
        let process = self
            .process
            .as_mut()
            .filter(|it| it.heartbeat.deadline() <= now)?;
        let pid = process.pid;
        let at = || match process::state(pid) {
            Some('T' | 't') => Activity::Stop,
            Some('S' | 'I') => Activity::Rest,
            // An ended one is reaped soon.
            Some(_) | None => Activity::Work,
        };
        let seen = Sample {
            has_read: fd::unread_by_peer(process.heartbeat_in.as_fd()) == Some(0),
            micros: process.clock.map_or(0, clock::ProcessClock::micros),
        };
        match process.heartbeat.check(seen, at, now) {
            HeartbeatAction::None => None,
            HeartbeatAction::Send => {
                // Its end is reaped soon, and there is room for a byte.
                let _ = socket::send(process.heartbeat_in.as_fd(), &[0]);
                None
            }
            HeartbeatAction::Kill(why) => Some(why),
        }
    }

    pub(super) fn kill(&self) {
        if let Some(process) = &self.process {
            let _ = process::send_signal(process.pid, Signal::SIGKILL);
        }
    }
}

impl AppPool {
    pub(super) fn new(template: &Pool, now: Tick) -> Result<AppPool, Error> {
        let (to_router, router) = socket_pair(SockType::SeqPacket)?;
        let (to_master, master) = socket_pair(SockType::SeqPacket)?;
        let _ = socket::refuse_descriptors(master.as_fd());
        Ok(AppPool {
            template: template.clone(),
            max: template.applications.as_ref().map_or(1, |it| it.max.get()),
            runs_as: None,
            router: HelperProcess::new(now),
            inspector: HelperProcess::new(now),
            sockets: Sockets {
                inspector: (to_router, to_master),
                router,
                master,
            },
            registry: crate::master::instances::InstanceRegistry::default(),
            applications: HashMap::new(),
            looks: BTreeMap::new(),
            last_look: 0,
            asked: BTreeMap::new(),
            last_asked: 0,
            last_errors: super::instances::LastErrors::default(),
            leases: BTreeMap::new(),
        })
    }

    pub(super) fn helper_process(&mut self, which: Which) -> &mut HelperProcess {
        match which {
            Which::Router => &mut self.router,
            Which::Inspector => &mut self.inspector,
        }
    }

    pub(super) fn pids(&self) -> (Option<i32>, Option<i32>) {
        (self.router.pid(), self.inspector.pid())
    }

    /// Sends a message now or when there is room. Without a router it is dropped: the next router gets everything.
    pub(super) fn say(&mut self, message: &ToRouter, descriptors: Vec<OwnedFd>) {
        let Some(process) = &mut self.router.process else {
            return;
        };
        match serde_json::to_vec(message) {
            Ok(bytes) => process.unsent.push_back((bytes, descriptors)),
            Err(error) => return log::error!("[pool {}] router: {error}", self.template.name),
        }
        self.push();
    }

    pub(super) fn push(&mut self) {
        let Some(process) = &mut self.router.process else {
            return;
        };
        let Some(channel) = &process.channel else { return };
        while let Some((bytes, descriptors)) = process.unsent.front() {
            let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
            match send_with(channel.as_fd(), bytes, &raw) {
                Ok(_) => _ = process.unsent.pop_front(),
                Err(error) if error.errno == Errno::EAGAIN => break,
                Err(error) if matches!(error.errno, Errno::EPIPE | Errno::ECONNRESET) => {
                    process.unsent.clear();
                    return;
                }
                Err(error) => {
                    log::error!(
                        "[pool {}] a message to the router is lost: {error}",
                        self.template.name
                    );
                    process.unsent.pop_front();
                }
            }
        }
        if process.unsent.len() > MOST_UNSENT {
            log::error!(
                "[pool {}] the router is killed because it does not listen",
                self.template.name
            );
            process.unsent.clear();
            self.router.kill();
        }
    }

    pub(super) fn look_at(&self, number: u64, root: &std::path::Path) {
        let question = protocol::InspectRequest {
            number,
            root: root.to_owned(),
        };
        let sent = serde_json::to_vec(&question)
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                send_with(self.sockets.master.as_fd(), &bytes, &[]).map_err(|error| error.to_string())
            });
        if let Err(error) = sent {
            log::error!(
                "[pool {}] the inspector can't be asked: {error}",
                self.template.name
            );
        }
    }
}

impl Executor {
    pub(super) fn start_helper_process(&mut self, id: PoolId, which: Which) -> Result<(), Error> {
        let nothing = || Error::new("start", "the pool is closed", Errno::EINVAL);
        let app_pool = self.applications.routers.get(&id).ok_or_else(nothing)?;
        let (template, name) = (app_pool.template.clone(), app_pool.template.name.clone());
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(|e| Error::from_io("dup", "", &e));
        let identity = run_as(&template)?;
        let runs_as = identity.as_ref().map(|identity| identity.uid);
        let (messages, messages_in) = socket_pair(SockType::Stream)?;
        let (channel, mut theirs) = match which {
            Which::Router => {
                let (ours, theirs) = socket_pair(SockType::SeqPacket)?;
                (Some(Guarded::new(ours)), vec![theirs])
            }
            Which::Inspector => {
                let (router, master) = &app_pool.sockets.inspector;
                (None, vec![copy(router)?, copy(master)?])
            }
        };
        let (heartbeat_in, heartbeat) = socket_pair(SockType::Stream)?;
        theirs.extend([messages_in, heartbeat]);
        let title = format!("{}: {which} {name}", template.title);
        let role = role(which, &template, identity).ok_or_else(nothing)?;
        let environment: Vec<_> = zone().into_iter().collect();
        let pid = self
            .context
            .start_helper(&self.reload, title, role, theirs, &environment)?;
        let who = match which {
            Which::Router => Who::Router(id),
            Which::Inspector => Who::Inspector(id),
        };
        self.processes.by_pid.insert(pid, who);
        log::debug!("[pool {name}] {which} {pid} started");
        self.context
            .sources
            .watch(&messages, Source::HelperMessages(id, which))?;
        match &channel {
            Some(channel) => {
                let both = Interest::READABLE | Interest::WRITABLE;
                self.context
                    .sources
                    .watch_for(channel, Source::Router(id), both)?;
            }
            None => {
                let app_pool = self.applications.routers.get(&id).ok_or_else(nothing)?;
                let socket = copy(&app_pool.sockets.master)?;
                // A copy, because each inspector gets a new watch.
                self.context.sources.watch(&socket, Source::Inspector(id))?;
                self.applications
                    .keep_inspector_socket(&mut self.context, id, socket);
            }
        }
        let app_pool = self.applications.routers.get_mut(&id).ok_or_else(nothing)?;
        app_pool.runs_as = runs_as;
        app_pool.helper_process(which).process = Some(RunningHelper {
            pid,
            channel,
            messages: Lines::new(Guarded::new(messages)),
            unsent: VecDeque::new(),
            heartbeat: Heartbeat::new(clock::now()),
            heartbeat_in: Guarded::new(heartbeat_in),
            clock: clock::ProcessClock::of(pid),
        });
        match which {
            Which::Router => self.applications.brief_router(&self.pools, id),
            Which::Inspector => self.applications.brief_inspector(id),
        }
    }

    /// Reads a router's messages. Returns `true` if there may be more.
    pub(in crate::master::executor) fn hear_router(&mut self, id: PoolId) -> bool {
        let mut buffer = vec![0; crate::router::messages::MOST_BYTES + 1];
        for _ in 0..LOOKS {
            let Some(app_pool) = self.applications.routers.get_mut(&id) else {
                return false;
            };
            app_pool.push();
            let channel = app_pool
                .router
                .process
                .as_ref()
                .and_then(|process| process.channel.as_ref());
            let Some(channel) = channel else { return false };
            let bytes = match channel.receive(&mut buffer) {
                Ok(Progress::Done(count)) if count > 0 => &buffer[..count],
                // The router has ended and is reaped as a child.
                Ok(_) | Err(_) => return false,
            };
            match serde_json::from_slice::<ToMaster>(bytes) {
                Ok(message) => self.router_said(id, message),
                Err(error) => {
                    log::error!(
                        "[pool {}] the router is killed because it does not keep to the protocol: {error}",
                        app_pool.template.name
                    );
                    app_pool.router.kill();
                    return false;
                }
            }
        }
        true
    }

    /// Reads an inspector's answers. Returns `true` if there may be more.
    pub(in crate::master::executor) fn hear_inspector(&mut self, id: PoolId) -> bool {
        let mut buffer = vec![0; crate::router::messages::MOST_BYTES + 1];
        for _ in 0..LOOKS {
            let Some(app_pool) = self.applications.routers.get_mut(&id) else {
                return false;
            };
            let bytes = match receive_bytes(app_pool.sockets.master.as_fd(), &mut buffer) {
                Ok(Progress::Done(count)) if count > 0 => &buffer[..count],
                Ok(_) | Err(_) => return false,
            };
            match serde_json::from_slice::<protocol::InspectReply>(bytes) {
                Ok(seen) => self.seen(id, seen),
                Err(error) => {
                    log::error!(
                        "[pool {}] invalid answer from the inspector: {error}",
                        app_pool.template.name
                    );
                    app_pool.inspector.kill();
                    return false;
                }
            }
        }
        true
    }
}

impl Applications {
    /// Sends a router its settings, sockets, and running instances.
    fn brief_router(&mut self, pools: &Pools, id: PoolId) -> Result<(), Error> {
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(|e| Error::from_io("dup", "", &e));
        let listener = pools.by_id.get(&id).and_then(|pool| pool.listener.as_ref());
        let listener = listener.map(|listener| copy(&listener.socket)).transpose()?;
        let listener = listener.ok_or_else(|| Error::new("start", "the pool is closed", Errno::EINVAL))?;
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return Ok(());
        };
        let inspector = copy(&app_pool.sockets.router)?;
        let settings = ToRouter::Settings(Box::new(app_pool.template.clone()));
        app_pool.say(&settings, vec![listener, inspector]);
        let known: Vec<(u64, Instance, OwnedFd)> = app_pool
            .registry
            .iter()
            .filter(|(_, instance)| instance.is_known)
            .filter_map(|(number, instance)| {
                let crate::master::instances::At::Up(_, worker) = instance.at else {
                    return None;
                };
                let worker = pools.workers.get(&worker)?;
                let told = Instance {
                    instance: number,
                    application: instance.application.clone(),
                    restarts: instance.restarts,
                    pid: worker.pid?,
                    revision: instance.revision.clone(),
                    origin: instance.origin.clone(),
                };
                Some((number, told, worker.channel.as_ref()?.try_clone().ok()?))
            })
            .collect();
        for (_, instance, channel) in known {
            app_pool.say(&ToRouter::Running(instance), vec![channel]);
        }
        let next = app_pool.registry.next();
        app_pool.say(&ToRouter::Begin { next }, Vec::new());
        Ok(())
    }

    /// Sends a new inspector the questions that the previous one has not answered.
    fn brief_inspector(&mut self, id: PoolId) -> Result<(), Error> {
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return Ok(());
        };
        for (number, instance) in &app_pool.looks {
            if let Some(instance) = app_pool.registry.get(*instance) {
                app_pool.look_at(*number, &instance.application);
            }
        }
        // Lost questions are repeated when the router gets a new inspector socket.
        let copy = |fd: &OwnedFd| fd.try_clone().map_err(|e| Error::from_io("dup", "", &e));
        let settings = ToRouter::Settings(Box::new(app_pool.template.clone()));
        let sockets = vec![copy(&app_pool.sockets.router)?, copy(&app_pool.sockets.router)?];
        app_pool.say(&settings, sockets);
        Ok(())
    }

    fn keep_inspector_socket(&mut self, context: &mut Context, id: PoolId, socket: OwnedFd) {
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut app_pool.sockets.master, socket);
        context.sources.forget(&before);
    }

    /// Logs their messages. Returns `true` if there may be more.
    pub(in crate::master::executor) fn read_helper_messages(
        &mut self,
        context: &mut Context,
        id: PoolId,
        which: Which,
    ) -> bool {
        let log = context.log;
        let Some(app_pool) = self.routers.get_mut(&id) else {
            return false;
        };
        let name = app_pool.template.name.clone();
        let Some(process) = &mut app_pool.helper_process(which).process else {
            return false;
        };
        let look = process.messages.read(|line| {
            let (level, text) = parse_message(line);
            // Lines get the pool's own prefix; it can't write for other pools.
            let own = format!("[pool {name}] ");
            let text = text.strip_prefix(&own).unwrap_or(&text);
            log.write_of_pool(level, &name, text);
        });
        if look == PipeRead::Ended {
            context.sources.forget(process.messages.pipe());
        }
        look == PipeRead::More
    }
}

impl Context {
    pub(super) fn forget_helper_processes(&mut self, app_pool: &AppPool) {
        self.sources.forget(&app_pool.sockets.master);
        for process in [&app_pool.router.process, &app_pool.inspector.process]
            .into_iter()
            .flatten()
        {
            self.sources.forget(process.messages.pipe());
            if let Some(channel) = &process.channel {
                self.sources.forget(channel);
            }
        }
    }
}

fn role(which: Which, template: &Pool, identity: Option<Identity>) -> Option<Role> {
    let applications = template.applications.as_ref()?;
    Some(match which {
        Which::Router => Role::Router {
            // Without root all run as the daemon's user.
            one_user: identity.is_none() || !applications.user_switching,
            identity,
        },
        Which::Inspector => Role::Inspector {
            identity,
            applications: applications.clone(),
        },
    })
}

/// The user of router and inspector; `None`: the daemon's.
fn run_as(template: &Pool) -> Result<Option<Identity>, Error> {
    if !identity::is_root() {
        return Ok(None);
    }
    let named = template
        .applications
        .as_ref()
        .and_then(|it| it.router_user.as_deref());
    let is_switching = template.applications.as_ref().is_some_and(|it| it.user_switching);
    match named {
        Some(user) => Identity::look_up(user, None),
        None => match template.user.as_deref() {
            Some(user) => Identity::look_up(user, template.group.as_deref()),
            None => match own_user() {
                Some(own) => Ok(own),
                None if is_switching => Identity::look_up(OWN_USER, None),
                // All applications share one user, which differs from this one.
                None => Identity::look_up(FALLBACK_USER, None),
            },
        },
    }
    .map(Some)
}
