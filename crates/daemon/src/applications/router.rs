//! Router and inspector: their start, and their messages over datagram sockets.

use super::instances::{LastErrors, told};
use super::{AppPool, Applications, Sockets};
use crate::context::Context;
use crate::context::generation::{closed, open_access_log};
use crate::context::helper::{own_user, zone};
use crate::context::helper_id::{HelperId, HelperStep};
use crate::context::helper_process::{HelperProcess, Pulse};
use crate::context::helpers::Helpers;
use crate::roles::Role;
use forkyard_config::{FALLBACK_USER, OWN_USER, Pool};
use forkyard_core::master::event::PoolId;
use forkyard_core::master::instances::{At, InstanceRegistry};
use forkyard_protocol::router::{MOST_BYTES, ToRouter};
use forkyard_router::inspector::protocol;
use forkyard_sys::fd::{copy, send_with, socket_pair};
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::process::appended_by_others;
use forkyard_sys::{Error, socket};
use nix::errno::Errno;
use nix::sys::socket::SockType;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;

const LOOKS: usize = 64;
/// The most messages that wait for a router; one that reads nothing is killed.
const MOST_UNSENT: usize = 100_000;

impl AppPool {
    pub(super) fn new(id: PoolId, template: &Pool, last_instance: u64) -> Result<AppPool, Error> {
        let (to_router, router) = socket_pair(SockType::SeqPacket)?;
        let (to_master, master) = socket_pair(SockType::SeqPacket)?;
        let _ = socket::refuse_descriptors(master.as_fd());
        Ok(AppPool {
            id,
            template: template.clone(),
            max: template.applications.as_ref().map_or(1, |it| it.max.get()),
            runs_as: None,
            sockets: Sockets {
                inspector: (to_router, to_master),
                router,
                master,
            },
            access: None,
            unsent: VecDeque::new(),
            registry: InstanceRegistry::after(last_instance),
            applications: HashMap::new(),
            asked: BTreeMap::new(),
            last_asked: 0,
            last_errors: LastErrors::default(),
            leases: BTreeMap::new(),
        })
    }

    /// Sends a message now or when there is room. If there is no router it is dropped: the next router gets everything.
    pub(super) fn say(&mut self, helpers: &Helpers, message: &ToRouter<Pool>, descriptors: Vec<OwnedFd>) {
        match serde_json::to_vec(message) {
            Ok(bytes) => self.unsent.push_back((bytes, descriptors)),
            Err(error) => return log::error!("[pool {}] router: {error}", self.template.name),
        }
        self.push(helpers);
    }

    fn push(&mut self, helpers: &Helpers) {
        let Some(process) = helpers.process(HelperId::Router(self.id)) else {
            return self.unsent.clear();
        };
        let Some(channel) = &process.channel else { return };
        while let Some((bytes, descriptors)) = self.unsent.front() {
            let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
            match send_with(channel.as_fd(), bytes, &raw) {
                Ok(_) => _ = self.unsent.pop_front(),
                Err(error) if error.errno == Errno::EAGAIN => break,
                Err(error) if matches!(error.errno, Errno::EPIPE | Errno::ECONNRESET) => {
                    return self.unsent.clear();
                }
                Err(error) => {
                    let name = &self.template.name;
                    log::error!("[pool {name}] a message to the router is lost: {error}");
                    self.unsent.pop_front();
                }
            }
        }
        if self.unsent.len() > MOST_UNSENT {
            let name = &self.template.name;
            log::error!("[pool {name}] the router is killed because it does not listen");
            self.unsent.clear();
            process.kill();
        }
    }

    /// Lets the inspector look at an instance's application.
    pub(super) fn look_for_instance(&self, context: &Context, number: u64, root: &Path) {
        let served = context.pools.sites.link_to(self.id, root);
        self.look_at(number, root, served.map(|served| served.link.as_path()));
    }

    /// Asks the inspector.
    pub(super) fn look_at(&self, number: u64, root: &Path, link: Option<&Path>) {
        let question = protocol::InspectRequest {
            number,
            root: root.to_owned(),
            link: link.map(Path::to_owned),
        };
        // Serialising plain values can't fail.
        let bytes = serde_json::to_vec(&question).unwrap_or_default();
        if let Err(error) = send_with(self.sockets.master.as_fd(), &bytes, &[]) {
            let name = &self.template.name;
            log::error!("[pool {name}] the inspector can't be asked: {error}");
        }
    }

    /// Starts its router or inspector.
    fn start(&mut self, context: &mut Context, id: HelperId) -> Result<(), Error> {
        let template = &self.template;
        let identity = run_as(template)?;
        let runs_as = identity.as_ref().map(|identity| identity.uid);
        let is_router = id == HelperId::Router(self.id);
        let (messages, messages_in) = socket_pair(SockType::Stream)?;
        let (channel, mut theirs) = if is_router {
            let (ours, theirs) = socket_pair(SockType::SeqPacket)?;
            (ours, vec![theirs])
        } else {
            let (router, master) = &self.sockets.inspector;
            // A copy, because each inspector gets a new watch.
            let ours = copy(&self.sockets.master)?;
            (ours, vec![copy(router)?, copy(master)?])
        };
        let (heartbeat_in, heartbeat) = socket_pair(SockType::Stream)?;
        theirs.extend([messages_in, heartbeat]);
        let title = format!("{}: {id} {}", template.title, template.name);
        let role = role(is_router, template, identity).ok_or_else(closed)?;
        let services = &context.services;
        let pid = services.start_helper(&context.in_force, title, role, theirs, zone())?;
        let mut process = HelperProcess::new(pid, channel, Some(messages));
        process.pulse = Some(Pulse::new(pid, heartbeat_in));
        context.helper_started(id, process)?;
        self.runs_as = runs_as;
        match is_router {
            true => self.brief_router(context),
            false => self.brief_inspector(context),
        }
    }

    /// Sends a router its settings, sockets, and running instances.
    fn brief_router(&mut self, context: &Context) -> Result<(), Error> {
        let (helpers, pools) = (&context.helpers, &context.pools);
        let pool = pools.by_id.get(&self.id);
        let listener = pool.and_then(|pool| pool.listener.as_ref()).ok_or_else(closed)?;
        let sockets = vec![copy(&listener.socket)?, copy(&self.sockets.router)?];
        self.say_settings(helpers, sockets);
        self.say_access_log(context);
        for site in pools.sites.of_router(self.id) {
            self.say(helpers, &ToRouter::Release(site.served.clone()), Vec::new());
        }
        let known = self.registry.iter().filter(|(_, instance)| instance.is_known);
        let known = known.filter_map(|(number, instance)| {
            let At::Up(worker) = instance.at else {
                return None;
            };
            let worker = pools.workers.get(&worker)?;
            let told = told(number, instance, worker.pid?);
            Some((told, worker.channel.as_ref()?.try_clone().ok()?))
        });
        for (instance, channel) in known.collect::<Vec<_>>() {
            self.say(helpers, &ToRouter::Running(instance), vec![channel]);
        }
        let next = self.registry.last().saturating_add(1);
        self.say(helpers, &ToRouter::Begin { next }, Vec::new());
        Ok(())
    }

    /// Sends a new inspector the questions that the previous one has not answered.
    fn brief_inspector(&mut self, context: &Context) -> Result<(), Error> {
        for (number, instance) in self.registry.iter() {
            if instance.at == At::Looking {
                self.look_for_instance(context, number, &instance.application);
            }
        }
        let helpers = &context.helpers;
        // Lost questions are repeated when the router gets a new inspector socket.
        let sockets = vec![copy(&self.sockets.router)?, copy(&self.sockets.router)?];
        self.say_settings(helpers, sockets);
        Ok(())
    }

    pub(super) fn say_settings(&mut self, helpers: &Helpers, sockets: Vec<OwnedFd>) {
        let settings = ToRouter::Settings(Box::new(self.template.clone()));
        self.say(helpers, &settings, sockets);
    }

    /// Opens the access log. If that fails, returns the file that was opened last and logs the failure, because no log
    /// keeps a site from starting.
    pub(super) fn open_access_log(&mut self) -> (Option<OwnedFd>, Option<String>) {
        let failure = match open_access_log(&self.template) {
            Ok(file) => {
                self.access = file;
                None
            }
            Err(error) => {
                let instead = match self.access {
                    Some(_) => "the file that was opened last is written on",
                    None => "requests leave no line there",
                };
                let name = &self.template.name;
                let failure = format!("[pool {name}] access.log: {error}; {instead}");
                log::error!("{failure}");
                Some(failure)
            }
        };
        (self.access.as_ref().and_then(|file| copy(file).ok()), failure)
    }

    /// Opens the access log for the router. Returns the failure.
    pub(super) fn say_access_log(&mut self, context: &Context) -> Option<String> {
        let (file, failure) = self.open_access_log();
        let theirs = match file {
            Some(file) if identity::is_root() => {
                let owner = self.runs_as.unwrap_or_else(identity::own_user);
                appended_by_others(&file, owner).map(Some)
            }
            file => Ok(file),
        };
        let theirs = match theirs {
            Ok(theirs) => theirs,
            Err(error) => {
                let failure = format!(
                    "[pool {}] the router has no access log: {error}",
                    self.template.name
                );
                log::error!("{failure}");
                return Some(failure);
            }
        };
        let limit = context.in_force.config.global.log_limit;
        let message = ToRouter::AccessLog { limit };
        self.say(&context.helpers, &message, theirs.into_iter().collect());
        failure
    }
}

impl Applications {
    /// Opens the routers' access logs again. Returns the failures.
    pub(crate) fn reopen_access_logs(&mut self, context: &Context) -> Vec<String> {
        let routers = self.routers.values_mut();
        routers
            .filter_map(|router| router.say_access_log(context))
            .collect()
    }

    pub(crate) fn follow_helper(
        &mut self,
        context: &mut Context,
        pool: PoolId,
        id: HelperId,
        step: HelperStep,
    ) -> Result<(), Error> {
        let Some(app_pool) = self.routers.get_mut(&pool) else {
            return Ok(());
        };
        let is_router = id == HelperId::Router(pool);
        match step {
            HelperStep::Start => {
                app_pool.start(context, id)?;
                if !is_router {
                    self.look_again(pool);
                }
            }
            HelperStep::Ask(limit) => {
                app_pool.say(&context.helpers, &ToRouter::Finish(Some(limit)), Vec::new());
            }
            HelperStep::Gone(_) if is_router => self.router_gone(context, pool),
            HelperStep::Idle if is_router => self.router_ended(context, pool),
            HelperStep::Gone(_) | HelperStep::Idle => {}
        }
        Ok(())
    }

    /// Reads messages of a router or inspector. Returns `true` if there may be more.
    pub(crate) fn hear(&mut self, context: &mut Context, id: HelperId) -> bool {
        let mut buffer = vec![0; MOST_BYTES + 1];
        (0..LOOKS).all(|_| self.hear_one(context, id, &mut buffer).is_some())
    }

    fn hear_one(&mut self, context: &mut Context, id: HelperId, buffer: &mut [u8]) -> Option<()> {
        match id {
            HelperId::Router(pool) => {
                self.routers.get_mut(&pool)?.push(&context.helpers);
                let message = context.helpers.receive(id, buffer)?;
                self.router_said(context, pool, message);
            }
            HelperId::Inspector(pool) => {
                let seen = context.helpers.receive(id, buffer)?;
                self.seen(context, pool, seen);
            }
            HelperId::Reporter(_) | HelperId::Responder(_) | HelperId::Jobs | HelperId::Web => return None,
        }
        Some(())
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
    let applications = template.applications.as_ref();
    let named = applications.and_then(|it| it.router_user.as_deref());
    let is_switching = applications.is_some_and(|it| it.user_switching);
    let (user, group) = match (named, template.account.user.as_deref()) {
        (Some(named), _) => (named, None),
        (None, Some(user)) => (user, template.account.group.as_deref()),
        (None, None) => match own_user() {
            Some(own) => return Ok(Some(own)),
            None if is_switching => (OWN_USER, None),
            // All applications share one user, which differs from this one.
            None => (FALLBACK_USER, None),
        },
    };
    Identity::look_up(user, group).map(Some)
}
