//! Router and inspector: their start, and their messages over datagram sockets.

use super::super::helper::{own_user, zone};
use super::super::helper_process::{HelperId, HelperProcess, Pulse, RunningHelper};
use super::super::sources::Source;
use super::super::{Applications, Context, Executor, Pools};
use super::instances::told;
use super::{AppPool, Sockets};
use crate::config::{FALLBACK_USER, OWN_USER, Pool};
use crate::helper::Role;
use crate::inspector::protocol;
use crate::life::Rules;
use crate::master::event::PoolId;
use crate::master::instances::At;
use crate::sys::Error;
use crate::sys::fd::{copy, send_with, socket_pair};
use crate::sys::guarded::receive_bytes;
use crate::sys::identity::{self, Identity};
use crate::sys::socket;
use crate::sys::socket::Progress;
use forkyard_protocol::router::{Instance, ToMaster, ToRouter};
use nix::errno::Errno;
use nix::sys::socket::SockType;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

const LOOKS: usize = 64;
/// The most messages that wait for a router; one that reads nothing is killed.
const MOST_UNSENT: usize = 100_000;

impl AppPool {
    pub(super) fn new(template: &Pool) -> Result<AppPool, Error> {
        let (to_router, router) = socket_pair(SockType::SeqPacket)?;
        let (to_master, master) = socket_pair(SockType::SeqPacket)?;
        let _ = socket::refuse_descriptors(master.as_fd());
        Ok(AppPool {
            template: template.clone(),
            max: template.applications.as_ref().map_or(1, |it| it.max.get()),
            runs_as: None,
            router: HelperProcess::new(Rules::ROUTER),
            inspector: HelperProcess::new(Rules::ROUTER),
            sockets: Sockets {
                inspector: (to_router, to_master),
                router,
                master,
            },
            registry: crate::master::instances::InstanceRegistry::default(),
            applications: HashMap::new(),
            asked: BTreeMap::new(),
            last_asked: 0,
            last_errors: super::instances::LastErrors::default(),
            leases: BTreeMap::new(),
        })
    }

    pub(super) fn pids(&self) -> (Option<i32>, Option<i32>) {
        (self.router.pid(), self.inspector.pid())
    }

    /// Sends a message now or when there is room. If there is no router it is dropped: the next router gets everything.
    pub(super) fn say(&mut self, message: &ToRouter<Pool>, descriptors: Vec<OwnedFd>) {
        let Some(process) = &mut self.router.running else {
            return;
        };
        match serde_json::to_vec(message) {
            Ok(bytes) => process.unsent.push_back((bytes, descriptors)),
            Err(error) => return log::error!("[pool {}] router: {error}", self.template.name),
        }
        self.push();
    }

    pub(super) fn push(&mut self) {
        let Some(process) = &mut self.router.running else {
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

    /// Has the application of an instance inspected.
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
    /// Starts a pool's router or inspector.
    pub(in crate::master::executor) fn start_router(
        &mut self,
        pool: PoolId,
        id: HelperId,
    ) -> Result<(), Error> {
        let nothing = || Error::new("start", "the pool is closed", Errno::EINVAL);
        let app_pool = self.applications.routers.get(&pool).ok_or_else(nothing)?;
        let template = &app_pool.template;
        let identity = run_as(template)?;
        let runs_as = identity.as_ref().map(|identity| identity.uid);
        let is_router = id == HelperId::Router(pool);
        let (messages, messages_in) = socket_pair(SockType::Stream)?;
        let (channel, mut theirs) = if is_router {
            let (ours, theirs) = socket_pair(SockType::SeqPacket)?;
            (Some(ours), vec![theirs])
        } else {
            let (router, master) = &app_pool.sockets.inspector;
            (None, vec![copy(router)?, copy(master)?])
        };
        let (heartbeat_in, heartbeat) = socket_pair(SockType::Stream)?;
        theirs.extend([messages_in, heartbeat]);
        let title = format!("{}: {id} {}", template.title, template.name);
        let role = role(is_router, template, identity).ok_or_else(nothing)?;
        // A copy, because each inspector gets a new watch.
        let socket = copy(&app_pool.sockets.master)?;
        let pid = self
            .context
            .start_helper(&self.reload, title, role, theirs, zone())?;
        let mut running = RunningHelper::new(pid, channel);
        running.pulse = Some(Pulse::new(pid, heartbeat_in));
        let sources = &mut self.context.sources;
        running.hear(id, messages, sources)?;
        match &running.channel {
            Some(channel) => {
                sources.watch_both(channel, Source::Router(pool))?;
            }
            None => {
                sources.watch(&socket, Source::Inspector(pool))?;
                self.applications
                    .keep_inspector_socket(&mut self.context, pool, socket);
            }
        }
        self.helper_started(id, running);
        if let Some(app_pool) = self.applications.routers.get_mut(&pool) {
            app_pool.runs_as = runs_as;
        }
        match is_router {
            true => self.applications.brief_router(&self.pools, pool),
            false => self.applications.brief_inspector(pool),
        }
    }

    /// Reads a router's messages. Returns `true` if there may be more.
    pub(in crate::master::executor) fn hear_router(&mut self, id: PoolId) -> bool {
        let mut buffer = vec![0; forkyard_protocol::router::MOST_BYTES + 1];
        for _ in 0..LOOKS {
            let Some(app_pool) = self.applications.routers.get_mut(&id) else {
                return false;
            };
            app_pool.push();
            let running = app_pool.router.running.as_ref();
            let Some(channel) = running.and_then(|running| running.channel.as_ref()) else {
                return false;
            };
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
        let mut buffer = vec![0; forkyard_protocol::router::MOST_BYTES + 1];
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
                let At::Up(worker) = instance.at else {
                    return None;
                };
                let worker = pools.workers.get(&worker)?;
                let told = told(number, instance, worker.pid?);
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
        let instances = app_pool.registry.iter();
        for (number, instance) in instances.filter(|(_, instance)| instance.at == At::Looking) {
            app_pool.look_at(number, &instance.application);
        }
        // Lost questions are repeated when the router gets a new inspector socket.
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
}

impl Context {
    pub(super) fn forget_helper_processes(&mut self, app_pool: &AppPool) {
        self.sources.forget(&app_pool.sockets.master);
        for helper in [&app_pool.router, &app_pool.inspector] {
            helper.running.iter().for_each(|it| it.forget(&mut self.sources));
        }
    }
}

fn role(is_router: bool, template: &Pool, identity: Option<Identity>) -> Option<Role> {
    let applications = template.applications.as_ref()?;
    Some(match is_router {
        true => Role::Router {
            // A daemon without root runs all as its own user.
            one_user: identity.is_none() || !applications.user_switching,
            identity,
        },
        false => Role::Inspector {
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
