//! Performs the pool's actions and handles messages from instances.

use super::admin_requests::AdminError;
use super::answer::{ErrorPage, Problem};
use super::channel::{FromWorker, ToWorker};
use super::client::Interest;
use super::event_loop::Router;
use super::instances::{INSTANCE, InstanceInput, InstanceProcess};
use super::sessions::Who;
use super::shortage::{ShortageStep, is_shortage};
use super::state::{ClientCause, ClientState};
use forkyard_base::origin::Origin;
use forkyard_core::applications::RestartMethod;
use forkyard_core::applications::action::{Action, Force, Refusal, Trouble};
use forkyard_core::applications::event::{Event, InstanceId, Return, SessionId};
use forkyard_protocol::router::{Instance, ToMaster};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const RETRY_AFTER: Duration = Duration::from_secs(1);
const MESSAGES: usize = 16;

impl Router {
    /// Sends the pool an event and performs the resulting actions. Events caused by actions are queued.
    pub(super) fn tell(&mut self, event: Event) {
        self.pool.add(event);
        let Some(mut actions) = self.pool.actions.take() else {
            return;
        };
        while self.pool.handle(self.now, &mut actions) {
            for action in actions.drain(..) {
                self.perform(action);
            }
        }
        self.pool.actions = Some(actions);
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Spawn(id, name, restarts) => {
                let restarts = self.apps.spawns(&name, restarts);
                self.master.say(&ToMaster::Spawn {
                    instance: id.0,
                    application: PathBuf::from(&*name),
                    restarts,
                });
            }
            Action::Stop(id, force) => self.stop(id.0, force == Force::Kill),
            Action::CheckOut(session, id) => self.check_out(session, id.0),
            Action::Refuse(session, refusal) => self.refused(session, refusal),
            Action::Lost { session, began } => self.lost(session, began),
            Action::Work(id) => {
                if !self.instances.tell(id.0, ToWorker::Work) {
                    self.pool.add(Event::Worked(id));
                }
            }
            Action::Disabled(id, outcome) => self.disabled(id.0, outcome),
            Action::Say(notice) => self.log_notice(notice),
        }
    }

    fn check_out(&mut self, session: SessionId, number: u64) {
        let Some(who) = self.sessions.check_out(session, number) else {
            return self.pool.add(Event::Close(session, Return::Ok));
        };
        match who {
            Who::Client(id) => self.pass(id, session, number),
            Who::AdminRequest(admin_request) => self.leased(admin_request, session, number),
            Who::Starter(admin_request) => self.started(admin_request, session),
            Who::Gone => {}
        }
    }

    pub(super) fn pass(&mut self, id: u64, session: SessionId, number: u64) {
        let one_user = self.settings.one_user;
        let client = self.clients.get_mut(id);
        let Some(client) = client.filter(|client| client.state() == ClientState::Waiting) else {
            self.sessions.remove(session);
            return self.tell(Event::Close(session, Return::Ok));
        };
        let kind = match one_user {
            true => ToWorker::Serve,
            false => ToWorker::ServeLast,
        };
        let descriptors = [client.socket().as_raw_fd()];
        let sent = self
            .instances
            .send(number, (kind, session), &client.bytes, &descriptors);
        if let Some(Err(error)) = &sent {
            if is_shortage(error) {
                return self.wait_for_room(id, session, error.errno);
            }
        }
        client.change(ClientCause::CheckedOut);
        client.expires = None;
        if matches!(sent, Some(Ok(()))) {
            client.keep &= one_user;
            if let Some(known) = &client.known {
                self.apps.count(&known.name, |counters| &mut counters.leases);
            }
            return;
        }
        // The instance is exiting, and the pool doesn't know yet.
        self.sessions.remove(session);
        self.tell(Event::Close(session, Return::Failed));
        self.retry(id);
    }

    /// Keeps the connection and its instance, and retries later.
    fn wait_for_room(&mut self, id: u64, session: SessionId, errno: Errno) {
        let now = self.now;
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let since = *client.stuck.get_or_insert(now);
        let queue_time = self.settings.applications.max_request_queue_time;
        let times = (since, queue_time.map(|time| client.since + time));
        let problem = match self
            .acceptor
            .shortage
            .step(self.settings.name(), errno, times, now)
        {
            ShortageStep::Retry(time) => {
                self.clients.expire_in(id, now, time);
                return self.watch_more(id, Interest::End);
            }
            ShortageStep::TimedOut => Problem::TimedOut,
            ShortageStep::Refuse => Problem::Unavailable,
        };
        self.give_back(session);
        self.deny(id, problem);
    }

    pub(super) fn pass_again(&mut self, id: u64) {
        let session = self.clients.get(id).and_then(|client| client.session);
        let held = session.and_then(|session| Some((session, self.sessions.get(session)?.instance?)));
        match held {
            Some((session, number)) => self.pass(id, session, number),
            // The instance sent a message about a request it never received.
            None => self.refuse(id, Problem::Unavailable),
        }
    }

    /// Cancels a session that was not passed on.
    pub(super) fn give_back(&mut self, session: SessionId) {
        let holder = self.sessions.remove(session);
        self.tell(match holder.and_then(|holder| holder.instance) {
            Some(_) => Event::Close(session, Return::Ok),
            None => Event::Cancel(session),
        });
    }

    fn refused(&mut self, session: SessionId, refusal: Refusal) {
        let Some(holder) = self.sessions.remove(session) else {
            return;
        };
        let id = match holder.who {
            Who::Client(id) => id,
            Who::AdminRequest(admin_request) => {
                return self.done(admin_request, Err(AdminError::Refused(refusal)));
            }
            Who::Starter(admin_request) => return self.not_started(admin_request, refusal),
            Who::Gone => return,
        };
        let problem = match refusal {
            Refusal::QueueFull => Problem::QueueFull(RETRY_AFTER),
            Refusal::TimedOut => Problem::TimedOut,
            Refusal::Trouble(Trouble::Failed(error)) => Problem::Failed(self.errors.get(error)),
            Refusal::Trouble(Trouble::TimedOut | Trouble::Died) => Problem::Failed(ErrorPage::default()),
            Refusal::NoneFree
            | Refusal::Unknown
            | Refusal::Removed
            | Refusal::ShuttingDown
            | Refusal::Stale => {
                log::warn!("[pool {}] a request is refused: {refusal}", self.settings.name());
                Problem::Unavailable
            }
        };
        self.deny(id, problem);
    }

    /// Counts a request that gets no instance, and answers it.
    fn deny(&mut self, id: u64, problem: Problem) {
        if let Some(known) = self.clients.get(id).and_then(|client| client.known.as_ref()) {
            self.apps.count(&known.name, |counters| match problem {
                Problem::QueueFull(_) => &mut counters.queue_full,
                Problem::TimedOut => &mut counters.timed_out,
                _ => &mut counters.refused,
            });
        }
        let dead = problem.dead();
        self.refuse_as(id, problem, dead);
    }

    fn lost(&mut self, session: SessionId, began: bool) {
        let Some(holder) = self.sessions.remove(session) else {
            return;
        };
        let Who::Client(id) = holder.who else { return };
        if !began || self.is_untouched(id) {
            return self.retry(id);
        }
        // The web server answers 502: only it knows how much of the answer arrived.
        if let Some(client) = self.clients.get(id) {
            forkyard_sys::socket::shutdown(client.socket());
        }
        self.close(id);
    }

    pub(super) fn is_up(&mut self, instance: Instance, channel: OwnedFd, adopted: Option<SessionId>) {
        let number = instance.instance;
        if number & !(INSTANCE - 1) != 0 {
            return;
        }
        let Some(name) = instance.application.to_str() else {
            return;
        };
        let name: Arc<str> = Arc::from(name);
        let added = self.instances.add(
            instance,
            Arc::clone(&name),
            channel,
            adopted,
            (&self.epoll, self.now),
        );
        if let Err(errno) = added {
            log::error!("can't watch an instance: epoll_ctl: {errno}");
            return self.stop(number, false);
        }
        if adopted.is_some() {
            self.instances.tell(number, ToWorker::Where);
        } else {
            self.apps.count(&name, |counters| &mut counters.spawned);
            self.tell(Event::Spawned(InstanceId(number)));
        }
    }

    /// Retires instances whose origin is another.
    pub(super) fn outdate(&mut self, name: &Arc<str>, is_other: impl Fn(&Origin) -> bool) {
        if self.instances.outdate(name, is_other) {
            log::warn!(
                "[pool {}] {name} is another directory now, or has another owner; its instances retire",
                self.settings.name()
            );
            self.tell(Event::Restart(Arc::clone(name), RestartMethod::Blocking));
        }
    }

    fn instance_moved(&mut self, number: u64) {
        let Some(process) = self.instances.get(number) else {
            return;
        };
        let (name, origin) = (Arc::clone(&process.application), process.origin.clone());
        self.outdate(&name, |known| Some(known) == origin.as_ref());
    }

    pub(super) fn failed(&mut self, number: u64, shown: ErrorPage) {
        let id = self.errors.add(shown);
        self.instances.remove(number, &self.epoll);
        self.tell(Event::SpawnFailed(InstanceId(number), id));
    }

    pub(super) fn instance_gone(&mut self, number: u64) {
        // Read the remaining messages, so that returned connections are not lost.
        for _ in 0..MESSAGES {
            if self.hear_message(number).is_none() {
                break;
            }
        }
        self.instances.remove(number, &self.epoll);
        self.tell(Event::Exited(InstanceId(number)));
    }

    pub(super) fn hear_instance(&mut self, number: u64) {
        for _ in 0..MESSAGES {
            if self.hear_message(number).is_none_or(|length| length == 0) {
                return;
            }
        }
    }

    /// Handles the next message, and returns its payload's length.
    fn hear_message(&mut self, number: u64) -> Option<usize> {
        match self.instances.receive(number, &mut self.buffer) {
            InstanceInput::Message(kind, session, bytes) => {
                let bytes = bytes.to_vec();
                let length = bytes.len();
                self.heard(number, kind, session, bytes);
                return Some(length);
            }
            InstanceInput::Nothing => {}
            InstanceInput::End => self.instances.channel_ended(number, &self.epoll, self.now),
            InstanceInput::Invalid => self.breaks_off(number),
        }
        None
    }

    fn breaks_off(&mut self, number: u64) {
        log::error!(
            "[pool {}] instance {number} is killed because it does not keep to the protocol",
            self.settings.name()
        );
        self.instances.channel_ended(number, &self.epoll, self.now);
        self.stop(number, true);
    }

    /// Asks the master to end an instance, which keeps its place until its exit. Otherwise a process that only closes
    /// its channel would make room for another.
    pub(super) fn stop(&mut self, number: u64, kill: bool) {
        self.master.say(&ToMaster::Stop {
            instance: number,
            kill,
        });
    }

    /// Handles a message. An instance may name only its own sessions.
    fn heard(&mut self, number: u64, kind: FromWorker, session: SessionId, bytes: Vec<u8>) {
        let id = InstanceId(number);
        let process = self.instances.get_mut(number);
        match kind {
            FromWorker::Here => {
                if let Some(session) = process.and_then(|process| process.adopted.take()) {
                    self.tell(Event::Close(session, Return::Ok));
                }
            }
            FromWorker::Has => {
                let is_known = self.sessions.get(session).is_some();
                if !is_known && process.is_some_and(InstanceProcess::finds) {
                    self.sessions.take_up(session, number);
                    self.tell(Event::Found(id, session));
                }
            }
            FromWorker::HeldUp => self.tell(Event::HeldUp(id, bytes == [1])),
            FromWorker::WorkWanted => self.tell(Event::WorkWanted(id)),
            FromWorker::Worked => self.tell(Event::Worked(id)),
            FromWorker::Memory => {
                if let Ok(bytes) = <[u8; 8]>::try_from(bytes) {
                    let bytes = u64::from_le_bytes(bytes);
                    if let Some(process) = process {
                        process.memory = Some(bytes);
                    }
                    self.tell(Event::Measured(id, bytes));
                }
            }
            FromWorker::Kept
            | FromWorker::Closed
            | FromWorker::NotBegun
            | FromWorker::Moved
            | FromWorker::Done
            | FromWorker::Released => {
                let holder = self.sessions.get(session);
                if let Some(holder) = holder.filter(|holder| holder.instance == Some(number)) {
                    self.session_heard(holder.who, (number, session), kind, bytes);
                }
            }
        }
    }

    /// Handles an instance's message about a session.
    fn session_heard(
        &mut self,
        who: Who,
        (number, session): (u64, SessionId),
        kind: FromWorker,
        bytes: Vec<u8>,
    ) {
        if kind == FromWorker::Released {
            if let Who::Client(client) = who {
                self.sessions.release(session);
                self.is_kept(client, bytes);
            }
            return;
        }
        if matches!(who, Who::AdminRequest(_)) {
            return;
        }
        self.sessions.remove(session);
        let is_failed = matches!(kind, FromWorker::NotBegun | FromWorker::Moved);
        let back = if is_failed { Return::Failed } else { Return::Ok };
        self.tell(Event::Close(session, back));
        if kind == FromWorker::Moved {
            self.instance_moved(number);
        }
        let Who::Client(client) = who else { return };
        match kind {
            FromWorker::Kept => self.is_kept(client, bytes),
            _ if is_failed => self.retry(client),
            _ => self.close(client),
        }
    }
}
