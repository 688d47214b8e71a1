//! Performs the pool's actions and handles messages from instances.

use super::answer::Problem;
use super::channel::{FromWorker, HEAD_BYTES, ToWorker, head, parse};
use super::counters::RequestOutcome;
use super::event_loop::{INSTANCE, Router};
use super::shortage::is_shortage;
use super::state::{ClientCause, ClientState};
use crate::applications::RestartMethod;
use crate::applications::action::{Action, Force, Refusal, Trouble};
use crate::applications::event::{ErrorId, Event, InstanceId, Return, SessionId};
use crate::origin::Origin;
use crate::sys::fd::send_gathered_with;
use crate::sys::guarded::receive_bytes;
use crate::sys::socket::{Progress, receive, refuses_descriptors};
use crate::tick::Tick;
use forkyard_protocol::router::{Instance, ToMaster};
use nix::sys::epoll::{EpollEvent, EpollFlags};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const GONE_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_secs(1);
const MOST_FOUND: u32 = 100_000;
const MESSAGES: usize = 16;

#[derive(Debug)]
pub(super) struct InstanceProcess {
    pub application: Arc<str>,
    pub pid: i32,
    pub revision: Option<String>,
    pub up: Tick,
    channel: OwnedFd,
    /// The channel accepts no descriptors. Otherwise it is closed at the first one, because closing a received
    /// descriptor can block.
    refuses_descriptors: bool,
    adopted: Option<SessionId>,
    found: u32,
    /// Set when the channel closed: the kill deadline.
    ended: Option<Tick>,
    pub memory: Option<u64>,
    origin: Option<Origin>,
    /// The application was replaced, and the pool knows.
    is_outdated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    Client(u64),
    /// A `forkyard take`, by its request number, later its lease.
    AdminRequest(u64),
    /// A `forkyard restart` that starts an application, by its request number.
    Starter(u64),
    /// A session without a client of this router. It ends when the instance reports its end.
    Gone,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    pub who: Who,
    pub instance: Option<u64>,
}

impl Session {
    pub(super) fn waiting(who: Who) -> Session {
        Session { who, instance: None }
    }
}

impl Router {
    /// Sends the pool an event and performs the resulting actions. Events caused by actions are queued.
    pub(super) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
        if std::mem::replace(&mut self.is_telling, true) {
            return;
        }
        while let Some(event) = self.events.pop_front() {
            let mut actions = std::mem::take(&mut self.actions);
            self.app_pool.handle(event, self.now, &mut actions);
            for action in actions.drain(..) {
                self.perform(action);
            }
            self.actions = actions;
        }
        self.is_telling = false;
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Spawn(id, name, restarts) => {
                let restarts = self.apps.spawns(&name, restarts);
                self.say(&ToMaster::Spawn {
                    instance: id.0,
                    application: PathBuf::from(&*name),
                    restarts,
                });
            }
            Action::Stop(id, force) => self.say(&ToMaster::Stop {
                instance: id.0,
                kill: force == Force::Kill,
            }),
            Action::CheckOut(session, id) => self.check_out(session, id.0),
            Action::Refuse(session, refusal) => self.refused(session, refusal),
            Action::Lost { session, began } => self.lost(session, began),
            Action::Work(id) => {
                if !self.send_message(id.0, ToWorker::Work) {
                    self.events.push_back(Event::Worked(id));
                }
            }
            Action::Disabled(id, outcome) => self.disabled(id.0, outcome),
            Action::Removed(_) | Action::Finished => {}
            Action::Say(notice) => self.log_notice(notice),
        }
    }

    fn check_out(&mut self, session: SessionId, number: u64) {
        let Some(holder) = self.sessions.get_mut(&session) else {
            return self.events.push_back(Event::Close(session, Return::Ok));
        };
        holder.instance = Some(number);
        match holder.who {
            Who::Client(id) => self.pass(id, session, number),
            Who::AdminRequest(admin_request) => self.leased(admin_request, session, number),
            Who::Starter(admin_request) => self.started(admin_request, session),
            Who::Gone => {}
        }
    }

    pub(super) fn pass(&mut self, id: u64, session: SessionId, number: u64) {
        let one_user = self.one_user;
        let Some(client) = self
            .clients
            .get(id)
            .filter(|client| client.state() == ClientState::Waiting)
        else {
            self.sessions.remove(&session);
            return self.tell(Event::Close(session, Return::Ok));
        };
        let kind = if one_user {
            ToWorker::Serve
        } else {
            ToWorker::ServeLast
        };
        let head = head(kind, session.0);
        let pieces = [IoSlice::new(&head), IoSlice::new(&client.bytes)];
        let descriptors: [RawFd; 1] = [client.socket().as_raw_fd()];
        let instance = self
            .instances
            .get(&number)
            .filter(|instance| instance.ended.is_none());
        let sent =
            instance.map(|instance| send_gathered_with(instance.channel.as_fd(), &pieces, &descriptors));
        if let Some(Err(error)) = &sent {
            if is_shortage(error) {
                return self.wait_for_room(id, session, error.errno);
            }
        }
        client.change(ClientCause::CheckedOut);
        client.expires = None;
        if matches!(sent, Some(Ok(_))) {
            client.keep &= one_user;
            if let Some(known) = &client.known {
                self.apps.leases(&known.name);
            }
            return;
        }
        // The instance is exiting, and the pool doesn't know yet.
        self.sessions.remove(&session);
        self.tell(Event::Close(session, Return::Failed));
        self.retry(id);
    }

    fn refused(&mut self, session: SessionId, refusal: Refusal) {
        let Some(holder) = self.sessions.remove(&session) else {
            return;
        };
        let id = match holder.who {
            Who::Client(id) => id,
            Who::AdminRequest(admin_request) => return self.not_leased(admin_request, refusal),
            Who::Starter(admin_request) => return self.not_started(admin_request, &refusal),
            Who::Gone => return,
        };
        let outcome = match refusal {
            Refusal::QueueFull => RequestOutcome::QueueFull,
            Refusal::TimedOut => RequestOutcome::TimedOut,
            _ => RequestOutcome::Refused,
        };
        if let Some(known) = self.clients.get(id).and_then(|client| client.known.clone()) {
            self.apps.count(&known.name, outcome);
        }
        let problem = match refusal {
            Refusal::QueueFull => Problem::QueueFull(RETRY_AFTER),
            Refusal::TimedOut => Problem::TimedOut,
            Refusal::Trouble(Trouble::Failed(error)) => match self.errors.get(error) {
                Some((error, page)) => Problem::Failed {
                    error: Some(error.clone()),
                    page: page.clone(),
                },
                None => Problem::Failed {
                    error: None,
                    page: None,
                },
            },
            Refusal::Trouble(Trouble::TimedOut | Trouble::Died) => Problem::Failed {
                error: None,
                page: None,
            },
            Refusal::NoneFree
            | Refusal::Unknown
            | Refusal::Removed
            | Refusal::ShuttingDown
            | Refusal::Stale => {
                log::warn!("[pool {}] a request is refused: {refusal}", self.pool.name);
                Problem::Unavailable
            }
        };
        self.refuse(id, problem);
    }

    fn lost(&mut self, session: SessionId, began: bool) {
        let Some(holder) = self.sessions.remove(&session) else {
            return;
        };
        let Who::Client(id) = holder.who else { return };
        if !began || self.is_untouched(id) {
            return self.retry(id);
        }
        // The web server answers 502: only it knows how much of the answer arrived.
        if let Some(client) = self.clients.get(id) {
            crate::sys::socket::shutdown(client.socket());
        }
        self.close(id);
    }

    /// Sends a message without payload. Returns `false` if the instance is gone.
    fn send_message(&self, number: u64, kind: ToWorker) -> bool {
        let Some(instance) = self
            .instances
            .get(&number)
            .filter(|instance| instance.ended.is_none())
        else {
            return false;
        };
        send_gathered_with(instance.channel.as_fd(), &[IoSlice::new(&head(kind, 0))], &[]).is_ok()
    }

    pub(super) fn is_up(&mut self, instance: Instance, channel: OwnedFd, adopted: Option<SessionId>) {
        let number = instance.instance;
        if number & !(INSTANCE - 1) != 0 {
            return;
        }
        let Some(name) = instance.application.to_str() else {
            return;
        };
        let event = EpollEvent::new(EpollFlags::EPOLLIN, INSTANCE | number);
        if let Err(errno) = self.epoll.add(&channel, event) {
            log::error!("can't watch an instance: epoll_ctl: {errno}");
            return self.say(&ToMaster::Stop {
                instance: number,
                kill: false,
            });
        }
        let process = InstanceProcess {
            application: Arc::from(name),
            pid: instance.pid,
            revision: instance.revision,
            up: self.now,
            refuses_descriptors: refuses_descriptors(channel.as_fd()),
            channel,
            adopted,
            found: 0,
            ended: None,
            memory: None,
            origin: instance.origin,
            is_outdated: false,
        };
        self.instances.insert(number, process);
        if adopted.is_some() {
            self.send_message(number, ToWorker::Where);
        } else {
            self.apps.came_up(name);
            self.tell(Event::Spawned(InstanceId(number)));
        }
    }

    /// Retires instances whose origin differs from the current one.
    pub(super) fn found_origin(&mut self, name: &Arc<str>, origin: &Origin) {
        self.outdate(name, |known| known != origin);
    }

    fn outdate(&mut self, name: &Arc<str>, is_other: impl Fn(&Origin) -> bool) {
        let mut any = false;
        for process in self.instances.values_mut() {
            let is_other = process.origin.as_ref().is_some_and(&is_other);
            if process.application == *name && is_other && !process.is_outdated {
                process.is_outdated = true;
                any = true;
            }
        }
        if any {
            log::warn!(
                "[pool {}] {name} is another directory now, or has another owner; its instances retire",
                self.pool.name
            );
            self.tell(Event::Restart(Arc::clone(name), RestartMethod::Blocking));
        }
    }

    fn instance_moved(&mut self, number: u64) {
        let Some(process) = self.instances.get(&number) else {
            return;
        };
        let (name, origin) = (Arc::clone(&process.application), process.origin.clone());
        self.outdate(&name, |known| Some(known) == origin.as_ref());
    }

    pub(super) fn failed(&mut self, number: u64, error: String, page: Option<String>) {
        self.next_error += 1;
        let id = ErrorId(self.next_error);
        self.errors.add(id, error, page);
        if let Some(process) = self.instances.remove(&number) {
            let _ = self.epoll.delete(&process.channel);
        }
        self.tell(Event::SpawnFailed(InstanceId(number), id));
    }

    pub(super) fn instance_gone(&mut self, number: u64) {
        // Read the remaining messages, so that returned connections are not lost.
        for _ in 0..MESSAGES {
            if self.hear_message(number).is_none() {
                break;
            }
        }
        if let Some(process) = self.instances.remove(&number) {
            let _ = self.epoll.delete(&process.channel);
            if let Some(due) = process.ended {
                self.ended.remove(&(due, number));
            }
        }
        self.tell(Event::Exited(InstanceId(number)));
    }

    /// Handles the closed channel. The instance keeps its place until the master reports the exit.
    fn channel_ended(&mut self, number: u64) {
        let due = self.now + GONE_TIMEOUT;
        if let Some(process) = self
            .instances
            .get_mut(&number)
            .filter(|process| process.ended.is_none())
        {
            process.ended = Some(due);
            let _ = self.epoll.delete(&process.channel);
            self.ended.insert((due, number));
        }
    }

    pub(super) fn hear_instance(&mut self, number: u64) {
        for _ in 0..MESSAGES {
            if self.hear_message(number).is_none_or(|count| count == HEAD_BYTES) {
                return;
            }
        }
    }

    fn hear_message(&mut self, number: u64) -> Option<usize> {
        let live = self
            .instances
            .get(&number)
            .filter(|process| process.ended.is_none());
        let live = live?;
        let received = match live.refuses_descriptors {
            true => receive(live.channel.as_fd(), &mut self.buffer),
            false => receive_bytes(live.channel.as_fd(), &mut self.buffer),
        };
        let count = match received {
            Ok(Progress::Done(count)) => count,
            Ok(Progress::WouldBlock) => return None,
            Err(_) => 0,
        };
        if count == 0 {
            self.channel_ended(number);
            return None;
        }
        match parse::<FromWorker>(&self.buffer[..count]) {
            Some((kind, session, bytes)) => {
                let bytes = bytes.to_vec();
                self.heard(number, kind, SessionId(session), bytes);
                Some(count)
            }
            None => {
                self.breaks_off(number);
                None
            }
        }
    }

    fn breaks_off(&mut self, number: u64) {
        log::error!(
            "[pool {}] instance {number} is killed because it does not keep to the protocol",
            self.pool.name
        );
        self.channel_ended(number);
        self.kill(number);
    }

    /// Asks the master to kill an instance, or waits for its exit. The instance keeps its place until then. Otherwise a
    /// process that only closes its channel would make room for another.
    pub(super) fn kill(&mut self, number: u64) {
        self.say(&ToMaster::Stop {
            instance: number,
            kill: true,
        });
    }

    /// Handles a message. An instance may name only its own sessions.
    fn heard(&mut self, number: u64, kind: FromWorker, session: SessionId, bytes: Vec<u8>) {
        let id = InstanceId(number);
        let holder = self.sessions.get(&session).copied();
        let holder = holder.filter(|holder| holder.instance == Some(number));
        match (kind, holder) {
            (FromWorker::Here, _) => {
                let adopted = self
                    .instances
                    .get_mut(&number)
                    .and_then(|process| process.adopted.take());
                if let Some(session) = adopted {
                    self.tell(Event::Close(session, Return::Ok));
                }
            }
            (FromWorker::Has, None) => {
                let process = self.instances.get_mut(&number);
                let process = process.filter(|it| it.adopted.is_some() && it.found < MOST_FOUND);
                if let (Some(process), false) = (process, self.sessions.contains_key(&session)) {
                    process.found += 1;
                    let who = Who::Gone;
                    let instance = Some(number);
                    self.sessions.insert(session, Session { who, instance });
                    self.tell(Event::Found(id, session));
                }
            }
            (FromWorker::Has, Some(_)) => {}
            (FromWorker::HeldUp, _) => self.tell(Event::HeldUp(id, bytes == [1])),
            (FromWorker::WorkWanted, _) => self.tell(Event::WorkWanted(id)),
            (FromWorker::Worked, _) => self.tell(Event::Worked(id)),
            (FromWorker::Memory, _) => {
                if let Ok(bytes) = <[u8; 8]>::try_from(bytes) {
                    let bytes = u64::from_le_bytes(bytes);
                    if let Some(process) = self.instances.get_mut(&number) {
                        process.memory = Some(bytes);
                    }
                    self.tell(Event::Measured(id, bytes));
                }
            }
            (
                FromWorker::Released,
                Some(Session {
                    who: Who::Client(client),
                    ..
                }),
            ) => {
                if let Some(holder) = self.sessions.get_mut(&session) {
                    holder.who = Who::Gone;
                }
                self.is_kept(client, bytes);
            }
            (
                FromWorker::Kept
                | FromWorker::Closed
                | FromWorker::NotBegun
                | FromWorker::Moved
                | FromWorker::Done,
                Some(holder),
            ) => {
                if matches!(holder.who, Who::AdminRequest(_)) {
                    return;
                }
                self.sessions.remove(&session);
                let back = match kind {
                    FromWorker::NotBegun | FromWorker::Moved => Return::Failed,
                    _ => Return::Ok,
                };
                self.tell(Event::Close(session, back));
                if kind == FromWorker::Moved {
                    self.instance_moved(number);
                }
                let Who::Client(client) = holder.who else { return };
                match kind {
                    FromWorker::Kept => self.is_kept(client, bytes),
                    FromWorker::NotBegun | FromWorker::Moved => self.retry(client),
                    _ => self.close(client),
                }
            }
            (
                FromWorker::Kept
                | FromWorker::Closed
                | FromWorker::NotBegun
                | FromWorker::Moved
                | FromWorker::Done
                | FromWorker::Released,
                _,
            ) => {}
        }
    }
}
