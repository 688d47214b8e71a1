//! Serves connections: reads, queues, passes on or answers their requests.

use super::answer::{Problem, to_violation, too_large};
use super::app_index::{Known, Lookup, Refused, is_possible};
use super::channel::MOST_BYTES;
use super::client::Interest;
use super::event_loop::{Phase, Router};
use super::reading::{InputEvent, RequestInput, Rest};
use super::request::{HeadLook, RequestHead, read_head, read_head_early};
use super::sessions::Who;
use super::state::{ClientCause, ClientState};
use forkyard_core::applications::event::{Event, Get, Target, Wait};
use forkyard_protocol::dead_work::DeadCount;
use forkyard_sys::socket::{Progress, peek, receive, send, shutdown_write};
use nix::sys::epoll::EpollFlags;
use std::os::fd::AsFd;
use std::sync::Arc;

const FIRST_LOOK: usize = 4 * 1024;
const LONGEST_LOOK: usize = 64 * 1024;
const READS: usize = 8;
const READ_BYTES: usize = 32 * 1024;
const MOST_TRIES: u8 = 10;
const MOST_REPLIES: usize = 16 * 1024;

impl Router {
    pub(super) fn called(&mut self, id: u64, flags: EpollFlags) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let gone = flags.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR | EpollFlags::EPOLLRDHUP);
        client.hangs_up |= gone;
        let state = client.state();
        if state.reads() {
            self.on_ready(id);
        } else if gone && state.waits() {
            self.may_have_left(id);
        } else if std::mem::replace(&mut client.stirred, true) && !gone {
            // A body has arrived, which the router doesn't read.
            self.watch(id, Interest::End);
        }
    }

    pub(super) fn on_ready(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        match client.state() {
            ClientState::Answering => self.answer_on(id),
            ClientState::Silent | ClientState::Idle | ClientState::Partial if client.reading.is_some() => {
                self.read_on(id);
                self.count_memory(id);
            }
            ClientState::Silent | ClientState::Idle | ClientState::Partial => self.examine(id),
            ClientState::Looking | ClientState::Waiting | ClientState::CheckedOut => {}
        }
    }

    fn examine(&mut self, id: u64) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut size = FIRST_LOOK;
        while let Some(client) = self.clients.get_mut(id) {
            let count = match peek(client.socket(), &mut buffer[..size]) {
                Ok(Progress::Done(count)) if count > 0 => count,
                Ok(Progress::WouldBlock) => {
                    self.watch_more(id, Interest::Input);
                    break;
                }
                Ok(Progress::Done(_)) | Err(_) => {
                    self.close(id);
                    break;
                }
            };
            let parameter = self.settings.root_parameter();
            let found = read_head(&buffer[..count], parameter);
            if found == HeadLook::Partial && count == size && size < LONGEST_LOOK {
                size = LONGEST_LOOK;
                continue;
            }
            let head = match found {
                HeadLook::Request(head) => Some(head),
                HeadLook::Partial if count == LONGEST_LOOK => read_head_early(&buffer[..count], parameter),
                HeadLook::Partial | HeadLook::Other => None,
            };
            match head {
                Some(head) => {
                    client.seen = count;
                    self.named(id, head);
                }
                // Read incomplete requests, so that epoll doesn't report the same bytes again.
                None => self.begin_reading(id, Vec::new()),
            }
            break;
        }
        self.buffer = buffer;
    }

    pub(super) fn begin_reading(&mut self, id: u64, read: Vec<u8>) {
        let reading = RequestInput::new(self.settings.limits(), read);
        if let Some(client) = self.clients.get_mut(id) {
            client.reading = Some(Box::new(reading));
        }
        self.change(id, ClientCause::Said);
        self.clients.ready.push(id);
    }

    fn read_on(&mut self, id: u64) {
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS {
            let Some(client) = self.clients.get_mut(id) else {
                return;
            };
            let Some(reading) = client.reading.as_deref_mut() else {
                return;
            };
            match reading.step(self.settings.root_parameter()) {
                InputEvent::Reply(reply) => {
                    let sent = send(client.socket(), reply.bytes());
                    if !matches!(sent, Ok(Progress::Done(count)) if count == reply.bytes().len()) {
                        return self.close(id);
                    }
                    client.sent += reply.bytes().len();
                    if client.sent > MOST_REPLIES {
                        return self.close(id);
                    }
                }
                InputEvent::Request { head, bytes } => {
                    client.reading = None;
                    client.sent = 0;
                    if bytes.len() > MOST_BYTES {
                        let answer = too_large(head.id);
                        return self.hang_up_with(id, answer);
                    }
                    client.bytes = bytes;
                    return self.named(id, head);
                }
                InputEvent::Broken(violation) => {
                    log::warn!("a connection was closed: {violation}");
                    let answer = to_violation(&violation);
                    if answer.is_empty() {
                        return self.close(id);
                    }
                    return self.hang_up_with(id, answer);
                }
                InputEvent::More => {
                    let received = receive(client.socket(), &mut buffer);
                    let Some(reading) = client.reading.as_deref_mut() else {
                        return;
                    };
                    match received {
                        Ok(Progress::Done(count)) if count > 0 => reading.receive(&buffer[..count]),
                        Ok(Progress::WouldBlock) => {
                            if reading.is_empty() {
                                client.reading = None;
                                client.sent = 0;
                            }
                            return self.watch_more(id, Interest::Input);
                        }
                        Ok(Progress::Done(_)) | Err(_) => return self.close(id),
                    }
                }
            }
        }
        self.clients.ready.push(id);
    }

    fn named(&mut self, id: u64, head: RequestHead<'_>) {
        let now = self.now;
        self.change(id, ClientCause::Named);
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        (client.id, client.keep, client.tries) = (head.id, head.keep, 0);
        (client.since, client.stuck, client.left) = (now, None, false);
        (client.stirred, client.release) = (false, None);
        let Some(root) = head.root.filter(|root| is_possible(root)) else {
            return self.refuse(id, Problem::NoRoot);
        };
        self.look_up(id, &root);
    }

    pub(super) fn look_up(&mut self, id: u64, root: &[u8]) {
        let rate = self.settings.applications.stat_throttle_rate;
        match self.inspections.ask(root, id, rate, self.now) {
            Lookup::Known(known) => self.found(id, known),
            Lookup::Refused(refused) => self.not_found(id, root, refused.as_deref()),
            Lookup::Busy => self.refuse(id, Problem::Unavailable),
            Lookup::Wait(_) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.root = root.to_vec();
                }
                self.watch_more(id, Interest::End);
            }
        }
    }

    /// Refuses a request for a root that is no application. If the root was a release in service, requests get the release
    /// that the link names. If the link is missing, they get the release in service.
    pub(super) fn not_found(&mut self, id: u64, root: &[u8], refused: Option<&Refused>) {
        let chosen = self.clients.get_mut(id).and_then(|client| client.release.take());
        if let Some(gone) = chosen {
            return self.release_gone(id, &gone);
        }
        match self.release_without_link(root) {
            Some(kept) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.release = Some(Arc::clone(&kept));
                }
                self.look_up(id, kept.as_bytes());
            }
            None => {
                let problem = self.settings.problem_of(refused, self.now);
                self.refuse(id, problem);
            }
        }
    }

    /// Queues a request for its application, or first inspects the release that serves it.
    pub(super) fn found(&mut self, id: u64, known: Arc<Known>) {
        let Some(known) = self.in_service(id, known) else {
            return;
        };
        let is_shared = self.settings.applications.user_switching;
        if !self.clients.count_user(id, known.owner, is_shared) {
            return self.refuse(id, Problem::Unavailable);
        }
        if let Some(client) = self.clients.get_mut(id) {
            client.known = Some(known);
        }
        self.change(id, ClientCause::Found);
        self.ask(id);
        if self.clients.get(id).is_some_and(|client| client.hangs_up) {
            self.may_have_left(id);
        }
    }

    pub(super) fn ask(&mut self, id: u64) {
        let now = self.now;
        let wait = self.settings.applications.max_request_queue_time;
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let Some(known) = client
            .known
            .clone()
            .filter(|_| client.state() == ClientState::Waiting)
        else {
            return;
        };
        let session = self.sessions.wait(Who::Client(id));
        client.session = Some(session);
        let known = self.still_served(known);
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.known = Some(Arc::clone(&known));
        let get = Get {
            session,
            target: Target::Application(Arc::clone(&known.name), known.options),
            wait: wait.map_or(Wait::Endless, |time| Wait::Until(client.since + time)),
            restart_files: client.restart_files.take(),
            alone: false,
        };
        if self.apps.asked(&known.name, now) {
            self.pool.add_application(&known.name, known.options);
        }
        self.clients.asked.push(id);
        self.tell(Event::Get(get));
    }

    pub(super) fn retry(&mut self, id: u64) {
        self.change(id, ClientCause::Returned);
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.tries += 1;
        if client.tries >= MOST_TRIES {
            let name = client.known.as_ref().map_or("", |known| &*known.name);
            log::warn!(
                "[pool {}] a request is refused: {MOST_TRIES} instances of {name} in turn did not take it",
                self.settings.name()
            );
            return self.refuse(id, Problem::Unavailable);
        }
        self.ask(id);
    }

    pub(super) fn is_untouched(&mut self, id: u64) -> bool {
        let mut buffer = vec![0; LONGEST_LOOK];
        let parameter = self.settings.root_parameter();
        self.clients.get_mut(id).is_some_and(|client| {
            let Ok(Progress::Done(count)) = peek(client.socket(), &mut buffer) else {
                return false;
            };
            let same = |head: RequestHead<'_>| head.id == client.id;
            let begins = match read_head(&buffer[..count], parameter) {
                HeadLook::Request(head) => same(head),
                HeadLook::Partial => read_head_early(&buffer[..count], parameter).is_some_and(same),
                HeadLook::Other => false,
            };
            client.bytes.is_empty() && count >= client.seen && begins
        })
    }

    pub(super) fn refuse(&mut self, id: u64, problem: Problem) {
        self.refuse_as(id, problem, None);
    }

    /// Answers a request. `dead`: why it is dead work.
    pub(super) fn refuse_as(&mut self, id: u64, problem: Problem, dead: Option<DeadCount>) {
        self.note_refused(id, problem.code(), dead);
        if let Some(client) = self.clients.get_mut(id) {
            client.out = problem.answer(client.id);
            self.begin_answer(id);
        }
    }

    /// Sends a final answer and closes the connection after the client has received it.
    fn hang_up_with(&mut self, id: u64, answer: Vec<u8>) {
        if let Some(client) = self.clients.get_mut(id) {
            (client.out, client.keep) = (answer, false);
            self.begin_answer(id);
        }
    }

    fn begin_answer(&mut self, id: u64) {
        let limits = self.settings.limits();
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.sent = 0;
        client.session = None;
        let read = std::mem::take(&mut client.bytes);
        client.rest = Some(Box::new(Rest::new(limits, &read)));
        self.change(id, ClientCause::Said);
        self.change(id, ClientCause::Refused);
        self.clients.ready.push(id);
    }

    fn answer_on(&mut self, id: u64) {
        let finishing = self.phase != Phase::Serving;
        let mut buffer = [0; READ_BYTES];
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        while client.sent < client.out.len() {
            match send(client.socket(), &client.out[client.sent..]) {
                Ok(Progress::Done(count)) => client.sent += count,
                Ok(Progress::WouldBlock) => return self.watch(id, Interest::Both),
                Err(_) => return self.close(id),
            }
        }
        if !client.out.is_empty() {
            (client.out, client.sent) = (Vec::new(), 0);
            if !client.keep || finishing {
                shutdown_write(client.socket());
            }
        }
        for _ in 0..READS {
            let ended = client.rest.as_deref().is_none_or(Rest::has_ended);
            let is_broken = client.rest.as_deref().is_some_and(Rest::is_broken);
            if client.keep && is_broken {
                client.keep = false;
                shutdown_write(client.socket());
            }
            if ended && !is_broken {
                let after = client
                    .rest
                    .take()
                    .map(|rest| rest.into_after())
                    .unwrap_or_default();
                return self.is_kept(id, after);
            }
            match receive(client.socket(), &mut buffer) {
                Ok(Progress::Done(count)) if count > 0 => {
                    if let Some(rest) = client.rest.as_deref_mut().filter(|_| !ended) {
                        rest.receive(&buffer[..count]);
                    }
                }
                Ok(Progress::WouldBlock) => return self.watch_more(id, Interest::Input),
                Ok(Progress::Done(_)) | Err(_) => return self.close(id),
            }
        }
        self.clients.ready.push(id);
    }

    /// Prepares a connection for its next request. `read` may be its start.
    pub(super) fn is_kept(&mut self, id: u64, read: Vec<u8>) {
        let finishing = self.phase != Phase::Serving;
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        if !client.keep || finishing {
            forkyard_sys::socket::shutdown(client.socket().as_fd());
            return self.close(id);
        }
        client.bytes = Vec::new();
        client.session = None;
        let stirred = std::mem::take(&mut client.stirred);
        let watch = client.watch;
        self.clients.uncount_user(id);
        self.count_memory(id);
        self.change(id, ClientCause::Kept);
        if !read.is_empty() {
            self.watch(id, Interest::Input);
            return self.begin_reading(id, read);
        }
        match watch {
            Interest::Input if stirred => self.clients.ready.push(id),
            Interest::Input => {}
            Interest::None | Interest::End | Interest::Both => self.watch(id, Interest::Input),
        }
    }

    pub(super) fn late(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        match client.state() {
            ClientState::Looking => {
                let root = std::mem::take(&mut client.root);
                match self.inspections.index.before(&root) {
                    Some(known) => self.found(id, known),
                    None => self.refuse(id, Problem::TimedOut),
                }
            }
            ClientState::Waiting if client.left => self.skip_if_left(id),
            ClientState::Waiting => self.pass_again(id),
            state => {
                if state == ClientState::Silent {
                    log::debug!("closed a silent connection");
                }
                self.close(id);
            }
        }
    }
}
