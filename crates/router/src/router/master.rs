//! Communication with the master and the inspector.

use super::answer::Problem;
use super::app_index::Refused;
use super::event_loop::Router;
use super::groups::MEMBER;
use super::instances::{Session, Who};
use super::settings::Bounds;
use super::start_requests::STARTER;
use super::state::ClientState;
use crate::applications::action::{Disabling, Notice, Refusal};
use crate::applications::event::{Adopted, Event, InstanceId, Return, SessionId};
use crate::applications::{Options, RestartMethod};
use crate::config::Pool;
use crate::inspector::protocol::{InspectReply, InspectRequest};
use crate::spawn::report::{ErrorId, Report};
use crate::sys::Error;
use crate::sys::fd::{receive_with, send_with};
use crate::sys::socket::{Progress, receive};
use forkyard_protocol::router::{AdminRequest, ToMaster, ToRouter, Unstarted};
use nix::errno::Errno;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use serde_json::{Value, json};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

const MESSAGES: usize = 32;
const MOST_UNREAD: usize = 16 * 1024;
const MASTER: u64 = 1;

impl Router {
    pub(super) fn say(&mut self, what: &ToMaster) {
        if self.is_orphan {
            return;
        }
        match serde_json::to_vec(what) {
            Ok(message) => self.outbox.push_back(message),
            Err(error) => log::error!("can't send to the master: {error}"),
        }
    }

    pub(super) fn flush_outbox(&mut self) -> Result<(), Error> {
        let had = self.is_stuck;
        while let Some(message) = self.outbox.front() {
            match send_with(self.master.as_fd(), message, &[]) {
                Ok(_) => drop(self.outbox.pop_front()),
                Err(error) if error.errno == Errno::EAGAIN => break,
                Err(error) if matches!(error.errno, Errno::EPIPE | Errno::ECONNRESET) => {
                    self.orphaned();
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        if self.outbox.len() > MOST_UNREAD {
            return Err(Error::new(
                "sendmsg",
                "the master does not listen",
                Errno::ENOBUFS,
            ));
        }
        self.is_stuck = !self.outbox.is_empty();
        if self.is_stuck != had && !self.is_orphan {
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, self.is_stuck);
            let done = self
                .epoll
                .modify(&self.master, &mut EpollEvent::new(flags, MASTER));
            done.map_err(|errno| Error::new("epoll_ctl", "", errno))?;
        }
        Ok(())
    }

    pub(super) fn hear_master(&mut self, flags: EpollFlags) {
        if !flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            return;
        }
        for _ in 0..MESSAGES {
            if self.is_orphan {
                break;
            }
            let received = match receive_with(self.master.as_fd(), &mut self.buffer, false) {
                Ok(received) if received.bytes > 0 => received,
                Err(error) if matches!(error.errno, Errno::EAGAIN | Errno::EINTR) => break,
                Ok(_) | Err(_) => {
                    self.orphaned();
                    break;
                }
            };
            match serde_json::from_slice(&self.buffer[..received.bytes]) {
                Ok(message) => self.told(message, received.descriptors),
                Err(error) => log::error!("the master's message is not understood: {error}"),
            }
        }
    }

    fn told(&mut self, message: ToRouter<Pool>, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        match message {
            ToRouter::Settings(pool) => self.settings_changed(*pool, descriptors.next(), descriptors.next()),
            ToRouter::Running(instance) => {
                if let Some(channel) = descriptors.next() {
                    self.running.push((instance, channel));
                }
            }
            ToRouter::Begin { next } => self.begin(next),
            ToRouter::Up(instance) => match descriptors.next() {
                Some(channel) => self.is_up(instance, channel, None),
                // The descriptor was lost because this process has too many open.
                None => self.say(&ToMaster::Stop {
                    instance: instance.instance,
                    kill: true,
                }),
            },
            ToRouter::Failed {
                instance,
                error,
                page,
            } => self.failed(instance, error, page),
            ToRouter::Gone { instance } => self.instance_gone(instance),
            ToRouter::AdminRequest { admin_request, what } => self.admin_request(admin_request, what),
            ToRouter::Finish(limit) => {
                self.accept_rest();
                self.finish(limit);
            }
        }
    }

    fn settings_changed(&mut self, pool: Pool, _listener: Option<OwnedFd>, inspector: Option<OwnedFd>) {
        if let Some(inspector) = inspector {
            self.inspector_changed(inspector);
        }
        let Some(settings) = pool.applications.clone() else {
            return log::error!("the pool's new settings have no applications");
        };
        if settings.max != self.settings.max {
            self.tell(Event::SetMax(settings.max));
        }
        if settings.reserve != self.settings.reserve {
            self.tell(Event::SetReserve(settings.reserve));
        }
        if settings.user_switching && !self.settings.user_switching {
            self.keep_no_more();
        }
        self.apps.forget_after = settings.forget_after;
        self.reconfigure(&Bounds::of(&settings));
        (self.pool, self.settings) = (pool, *settings);
        self.app_index.look_anew();
        self.regroup();
    }

    fn reconfigure(&mut self, pool: &Bounds) {
        let known = self.app_index.settings(pool);
        for name in self.app_pool.names_with_instances().collect::<Vec<_>>() {
            let now = self.app_pool.options(&name).copied().unwrap_or_default();
            let options = known.get(&name).copied().unwrap_or_else(|| Options {
                shares_program: now.shares_program,
                concurrency: now.concurrency,
                user: now.user,
                ..pool.unknown()
            });
            self.tell(Event::Changed(name, options));
        }
    }

    /// Stops keeping connections, because applications now have several users and processes may hold copies of
    /// connections. Permanent for this router.
    fn keep_no_more(&mut self) {
        self.one_user = false;
        for id in self.clients.ids() {
            match self.clients.get(id) {
                Some(client) if client.state() == ClientState::Idle => self.close(id),
                Some(client) => client.keep = false,
                None => {}
            }
        }
    }

    /// Adopts the running instances and starts serving.
    fn begin(&mut self, next: u64) {
        let now = self.now;
        let mut adopted = Vec::new();
        for (instance, channel) in std::mem::take(&mut self.running) {
            let Some(name) = instance.application.to_str().map(Arc::<str>::from) else {
                continue;
            };
            let session = self.new_session();
            self.apps.adopted(&name, instance.restarts, now);
            adopted.push(Adopted {
                id: InstanceId(instance.instance),
                application: name,
                options: self.settings.options,
                session,
            });
            self.is_up(instance, channel, Some(session));
        }
        self.tell(Event::Adopt(adopted, InstanceId(next)));
        self.open();
        self.regroup();
    }

    pub(super) fn ask_inspector(&mut self, look: &InspectRequest) {
        let Ok(message) = serde_json::to_vec(look) else {
            return;
        };
        if let Err(error) = send_with(self.inspector.as_fd(), &message, &[]) {
            log::warn!("the inspector can't be asked: {error}");
        }
    }

    pub(super) fn hear_inspector(&mut self) {
        for _ in 0..MESSAGES {
            let count = match receive(self.inspector.as_fd(), &mut self.buffer) {
                Ok(Progress::Done(count)) if count > 0 => count,
                Ok(Progress::WouldBlock) => break,
                Ok(Progress::Done(_)) | Err(_) => {
                    let _ = self.epoll.delete(&self.inspector);
                    break;
                }
            };
            match serde_json::from_slice::<InspectReply>(&self.buffer[..count]) {
                Ok(seen) => self.seen(seen),
                Err(error) => log::warn!("the inspector's answer is not understood: {error}"),
            }
        }
    }

    fn inspector_changed(&mut self, inspector: OwnedFd) {
        let _ = self.epoll.delete(&self.inspector);
        self.inspector = inspector;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, super::event_loop::INSPECTOR);
        if let Err(errno) = self.epoll.add(&self.inspector, event) {
            log::error!("can't watch the inspector: epoll_ctl: {errno}");
        }
        for look in self.app_index.unanswered() {
            self.ask_inspector(&look);
        }
    }

    fn seen(&mut self, seen: InspectReply) {
        let Some(inspected) = self.app_index.seen(seen, &Bounds::of(&self.settings), self.now) else {
            return;
        };
        if let Some(text) = inspected.say {
            let what = if inspected.looked {
                "no application"
            } else {
                "no look"
            };
            let line = format!("{what}: {text}");
            if let Some(line) = self.gathered.add(&inspected.root, line, self.now) {
                log::warn!("[pool {}] {line}", self.pool.name);
            }
        }
        if let (Some(known), Some(origin)) = (&inspected.known, &inspected.origin) {
            self.found_origin(&known.name, origin);
        }
        let mut waiting = inspected.waiting;
        waiting.retain(|who| ![MEMBER, STARTER].contains(who));
        if let (Some(known), true) = (&inspected.known, waiting.is_empty() && inspected.looked) {
            self.tell(Event::Seen(Arc::clone(&known.name), inspected.restart_files));
        }
        for (index, id) in waiting.into_iter().enumerate() {
            let Some(client) = self
                .clients
                .get(id)
                .filter(|one| one.state() == ClientState::Looking)
            else {
                continue;
            };
            match &inspected.known {
                Some(known) => {
                    client.restart_files =
                        (index == 0 && inspected.looked).then_some(inspected.restart_files);
                    self.found(id, Arc::clone(known));
                }
                None if inspected.looked || inspected.refused.is_some() => {
                    let problem = self.problem_of(inspected.refused.as_deref());
                    self.refuse(id, problem);
                }
                None => self.refuse(id, Problem::Unavailable),
            }
        }
        self.member_seen(&inspected.root, inspected.known.as_ref());
        self.start_seen(
            &inspected.root,
            inspected.known.as_ref().filter(|_| inspected.looked),
            inspected.refused.as_deref(),
        );
    }

    pub(super) fn problem_of(&self, refused: Option<&Refused>) -> Problem {
        let Some(Refused { refusal, why }) = refused else {
            return Problem::NotFound {
                error: None,
                page: None,
            };
        };
        let id = ErrorId(refusal.id);
        let report = || Report::refused(id, &self.pool.name, &refusal.root, refusal.owner, why, self.now);
        let page = self.pool.pages.friendly_error_pages.then(|| report().page());
        let error = Some(id.to_string());
        match refusal.is_no_application {
            true => Problem::NotFound { error, page },
            false => Problem::Failed { error, page },
        }
    }

    pub(super) fn done(&mut self, admin_request: u64, result: Result<Value, String>) {
        self.say(&ToMaster::Done {
            admin_request,
            result,
        });
    }

    fn admin_request(&mut self, admin_request: u64, what: AdminRequest) {
        match what {
            AdminRequest::View => {
                let view = self.view();
                self.done(admin_request, Ok(view));
            }
            AdminRequest::Restart {
                application,
                rolling,
                unstarted,
            } => match unstarted == Unstarted::Stays || self.has_instances(&application) {
                true => self.restart(admin_request, &application, rolling),
                false => self.start(admin_request, application, unstarted),
            },
            AdminRequest::Detach { pid } => match self.instance_of(pid) {
                Ok(number) => {
                    self.tell(Event::Detach(InstanceId(number)));
                    self.done(admin_request, Ok(json!({ "instance": number })));
                }
                Err(why) => self.done(admin_request, Err(why)),
            },
            AdminRequest::Disable { pid, enable } => match self.instance_of(pid) {
                Ok(number) if enable => {
                    self.tell(Event::Enable(InstanceId(number)));
                    self.done(admin_request, Ok(json!({ "instance": number })));
                }
                Ok(number) => {
                    self.disabling.entry(number).or_default().push(admin_request);
                    self.tell(Event::Disable(InstanceId(number)));
                }
                Err(why) => self.done(admin_request, Err(why)),
            },
            AdminRequest::SetMax { max } => match std::num::NonZeroU32::new(max) {
                Some(max) => {
                    self.tell(Event::SetMax(max));
                    self.done(admin_request, Ok(json!({ "max": max })));
                }
                None => self.done(
                    admin_request,
                    Err("a pool of no instances serves nothing: at least 1".to_owned()),
                ),
            },
            AdminRequest::Take { of, wait } => self.take(admin_request, &of, wait),
            AdminRequest::Return { lease, ok } => {
                let session = SessionId(lease);
                let is_lease = |holder: &Session| {
                    matches!(holder.who, Who::AdminRequest(_)) && holder.instance.is_some()
                };
                if self.sessions.get(&session).is_some_and(is_lease) {
                    self.sessions.remove(&session);
                    let back = if ok { Return::Ok } else { Return::Failed };
                    self.tell(Event::Close(session, back));
                }
                self.done(admin_request, Ok(json!({ "lease": lease })));
            }
        }
    }

    fn instance_of(&self, pid: i32) -> Result<u64, String> {
        let found = self.instances.iter().find(|(_, process)| process.pid == pid);
        found
            .map(|(number, _)| *number)
            .ok_or_else(|| format!("process {pid} is no instance of pool {}", self.pool.name))
    }

    fn restart(&mut self, admin_request: u64, application: &Path, rolling: Option<bool>) {
        let name = application.to_str().filter(|name| self.apps.get(name).is_some());
        let Some(name) = name.map(Arc::<str>::from) else {
            let path = application.display();
            return self.done(
                admin_request,
                Err(format!(
                    "{path} is no application that pool {} knows; the first request starts it, or --wait",
                    self.pool.name
                )),
            );
        };
        let method = match rolling {
            Some(true) => RestartMethod::Rolling,
            Some(false) => RestartMethod::Blocking,
            None => self
                .app_pool
                .restart_method(&name)
                .unwrap_or(RestartMethod::Blocking),
        };
        self.tell(Event::Restart(name, method));
        self.done(
            admin_request,
            Ok(json!({ "rolling": method == RestartMethod::Rolling })),
        );
    }

    pub(super) fn leased(&mut self, admin_request: u64, session: SessionId, number: u64) {
        let pid = self.instances.get(&number).map(|process| process.pid);
        self.done(admin_request, Ok(json!({ "lease": session.0, "pid": pid })));
    }

    pub(super) fn not_leased(&mut self, admin_request: u64, refusal: Refusal) {
        self.done(admin_request, Err(refusal.to_string()));
    }

    pub(super) fn disabled(&mut self, number: u64, outcome: Disabling) {
        let result = match outcome {
            Disabling::Done => Ok(json!({ "disabled": true })),
            Disabling::Already => Ok(json!({ "disabled": true, "already": true })),
            Disabling::Impossible => {
                Err("it is the only one that serves, and another can't be started".to_owned())
            }
            Disabling::Canceled => Err("it was enabled again before".to_owned()),
            Disabling::Gone => Err("it is leaving".to_owned()),
        };
        for admin_request in self.disabling.remove(&number).unwrap_or_default() {
            self.done(admin_request, result.clone());
        }
    }

    pub(super) fn log_notice(&mut self, notice: Notice) {
        let pool = &self.pool.name;
        let who = |id: InstanceId| match self.instances.get(&id.0) {
            Some(process) => format!("{}: instance {}", process.application, process.pid),
            None => format!("instance number {}", id.0),
        };
        match notice {
            Notice::Leaves(id, reason) => log::debug!("[pool {pool}] {} leaves: {reason}", who(id)),
            Notice::Stays(id) => log::debug!("[pool {pool}] {} stays", who(id)),
            Notice::Ended(id) => log::warn!("[pool {pool}] instance number {} ended by itself", id.0),
            Notice::StopTimedOut(id) => {
                log::warn!("[pool {pool}] {} did not stop in time and is killed", who(id));
            }
            Notice::DrainTimedOut(id) => {
                log::warn!("[pool {pool}] {} is stopped, its requests take too long", who(id));
            }
            Notice::Trouble(name, trouble, delay) => {
                let why = match trouble {
                    crate::applications::action::Trouble::Failed(error) => {
                        let error = self.errors.get(error).map(|(error, _)| error.clone());
                        format!(
                            "an instance could not be started (error ID {})",
                            error.unwrap_or_default()
                        )
                    }
                    crate::applications::action::Trouble::TimedOut => {
                        "an instance was not up in time".to_owned()
                    }
                    crate::applications::action::Trouble::Died => {
                        "an instance died before it had answered anything".to_owned()
                    }
                };
                let next = delay.map(|delay| format!("the next try is in {} s", delay.as_secs_f64()));
                // The master has already logged why the start failed.
                let is_known = matches!(trouble, crate::applications::action::Trouble::Failed(_));
                match next {
                    Some(next) if is_known => log::info!("[pool {pool}] {name}: {next}"),
                    Some(next) => log::warn!("[pool {pool}] {name}: {why}; {next}"),
                    None if is_known => {}
                    None => log::warn!("[pool {pool}] {name}: {why}"),
                }
                self.apps.did_not_come_up(&name, why);
            }
            Notice::Renewing(name, reason) => {
                log::info!("[pool {pool}] {name}: the program is replaced: {reason}");
            }
            Notice::Restarting(name) => log::info!("[pool {pool}] {name}: restarting"),
            Notice::Restarted(name) => log::info!("[pool {pool}] {name}: every instance has been replaced"),
            Notice::Resisting(name, _) => log::error!(
                "[pool {pool}] {name}: the new code can't be started; the old instances go on until the next restart"
            ),
            Notice::QueueFull(name) => log::warn!(
                "[pool {pool}] {name}: requests are refused: max_request_queue_size ({}) requests are waiting",
                self.settings
                    .options
                    .max_request_queue_size
                    .map_or(0, std::num::NonZeroU32::get)
            ),
            Notice::NameTaken(name) => log::debug!("[pool {pool}] {name} is there already"),
        }
    }
}
