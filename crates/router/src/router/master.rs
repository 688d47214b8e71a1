//! Messages from the master and the inspector, and the pool's notices.

use super::admin_requests::STARTER;
use super::answer::{ErrorPage, Problem};
use super::event_loop::Router;
use super::groups::MEMBER;
use super::settings::{Bounds, PoolSettings};
use super::state::ClientState;
use crate::inspector::protocol::InspectReply;
use forkyard_config::Pool;
use forkyard_core::applications::Options;
use forkyard_core::applications::action::{Notice, Trouble};
use forkyard_core::applications::event::{Adopted, Event, InstanceId};
use forkyard_protocol::router::ToRouter;
use nix::sys::epoll::EpollFlags;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const MESSAGES: usize = 32;

impl Router {
    pub(super) fn hear_master(&mut self, flags: EpollFlags) {
        if !flags.intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR) {
            return;
        }
        for _ in 0..MESSAGES {
            match self.master.receive(&mut self.buffer, &self.epoll) {
                Ok(Some((message, descriptors))) => self.told(message, descriptors),
                Ok(None) => break,
                Err(gone) => return self.orphaned(gone),
            }
        }
    }

    fn told(&mut self, message: ToRouter<Pool>, descriptors: Vec<OwnedFd>) {
        let mut descriptors = descriptors.into_iter();
        match message {
            // The listening socket comes first, and is the one that the router has.
            ToRouter::Settings(pool) => self.settings_changed(*pool, descriptors.nth(1)),
            ToRouter::AccessLog { limit } => {
                let settings = self.settings.pool.logs.access.as_ref();
                self.refused.log_to(descriptors.next(), settings, limit);
            }
            ToRouter::Running(instance) => {
                if let Some(channel) = descriptors.next() {
                    self.instances.running.push((instance, channel));
                }
            }
            ToRouter::Begin { next } => self.begin(next),
            ToRouter::Up(instance) => match descriptors.next() {
                Some(channel) => self.is_up(instance, channel, None),
                // The descriptor was lost because this process has too many open.
                None => self.stop(instance.instance, true),
            },
            ToRouter::Failed {
                instance,
                error,
                page,
            } => {
                let error = Some(error);
                self.failed(instance, ErrorPage { error, page });
            }
            ToRouter::Gone { instance } => self.instance_gone(instance),
            ToRouter::AdminRequest { admin_request, what } => self.admin_request(admin_request, what),
            ToRouter::Release(served) => self.release_changed(&served),
            ToRouter::Finish(limit) => {
                self.accept_rest();
                self.finish(limit);
            }
        }
    }

    fn settings_changed(&mut self, pool: Pool, inspector: Option<OwnedFd>) {
        if let Some(inspector) = inspector {
            self.inspections.replace(inspector, &self.epoll);
        }
        let Some(settings) = PoolSettings::new(pool, self.settings.one_user) else {
            return log::error!("the pool's new settings have no applications");
        };
        let before = std::mem::replace(&mut self.settings, settings).applications;
        let now = &self.settings.applications;
        let (max, reserve) = (now.max, now.reserve);
        let is_switched = now.user_switching && !before.user_switching;
        self.apps.forget_after = now.forget_after;
        if max != before.max {
            self.tell(Event::SetMax(max));
        }
        if reserve != before.reserve {
            self.tell(Event::SetReserve(reserve));
        }
        if is_switched {
            self.keep_no_more();
        }
        self.reconfigure(&self.settings.bounds());
        self.inspections.index.look_anew();
        self.regroup();
    }

    fn reconfigure(&mut self, pool: &Bounds) {
        let known = self.inspections.index.settings(pool);
        for name in self.pool.core.names_with_instances().collect::<Vec<_>>() {
            let now = self.pool.core.options(&name).copied().unwrap_or_default();
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
        self.settings.one_user = false;
        for id in self.clients.ids() {
            match self.clients.get_mut(id) {
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
        for (instance, channel) in std::mem::take(&mut self.instances.running) {
            let Some(name) = instance.application.to_str().map(Arc::<str>::from) else {
                continue;
            };
            let session = self.sessions.new_id();
            self.apps.adopted(&name, instance.restarts, now);
            adopted.push(Adopted {
                id: InstanceId(instance.instance),
                application: name,
                options: self.settings.applications.options,
                session,
            });
            self.is_up(instance, channel, Some(session));
        }
        self.tell(Event::Adopt(adopted, InstanceId(next)));
        self.acceptor.open(&self.epoll, self.now);
        self.regroup();
    }

    pub(super) fn hear_inspector(&mut self) {
        for _ in 0..MESSAGES {
            match self.inspections.receive(&mut self.buffer, &self.epoll) {
                Some(reply) => self.seen(reply),
                None => break,
            }
        }
    }

    fn seen(&mut self, seen: InspectReply) {
        let settings = &self.settings;
        let inspected = self
            .inspections
            .seen(seen, &settings.bounds(), settings.name(), self.now);
        let Some(inspected) = inspected else {
            return;
        };
        if let (Some(known), Some(origin)) = (&inspected.known, &inspected.origin) {
            self.outdate(&known.name, |now| now != origin);
        }
        let mut waiting = inspected.waiting;
        waiting.retain(|who| ![MEMBER, STARTER].contains(who));
        if let (Some(known), true) = (&inspected.known, waiting.is_empty() && inspected.looked) {
            self.tell(Event::Seen(Arc::clone(&known.name), inspected.restart_files));
        }
        for (index, id) in waiting.into_iter().enumerate() {
            let Some(client) = self
                .clients
                .get_mut(id)
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
                    self.not_found(
                        id,
                        inspected.root.as_os_str().as_bytes(),
                        inspected.refused.as_deref(),
                    );
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

    pub(super) fn log_notice(&mut self, notice: Notice) {
        let pool = self.settings.name();
        let who = |id: InstanceId| match self.instances.get(id.0) {
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
                    Trouble::Failed(error) => {
                        let id = self.errors.get(error).error.unwrap_or_default();
                        format!("an instance could not be started (error ID {id})")
                    }
                    Trouble::TimedOut => "an instance was not up in time".to_owned(),
                    Trouble::Died => "an instance died before it had answered anything".to_owned(),
                };
                let next = delay.map(|delay| format!("the next try is in {} s", delay.as_secs_f64()));
                // The master has already logged why the start failed.
                let is_known = matches!(trouble, Trouble::Failed(_));
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
            Notice::QueueFull(name) => {
                let most = self.settings.applications.options.max_request_queue_size;
                let most = most.map_or(0, NonZeroU32::get);
                log::warn!(
                    "[pool {pool}] {name}: requests are refused: max_request_queue_size ({most}) requests are waiting"
                );
            }
            Notice::NameTaken(name) => log::debug!("[pool {pool}] {name} is there already"),
        }
    }
}
