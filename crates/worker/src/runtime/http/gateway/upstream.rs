//! How a request finds its process: chooses one, connects to it, tries others, waits for one, gives up.

use super::super::table::ProcessEntry;
use super::event_loop::Gateway;
use super::exchange::Exchange;
use super::front::Visit;
use super::links::{Attempt, Choice, Reuse, User};
use crate::sys::clock;
use crate::tick::Tick;
use forkyard_protocol::accept_notify::RestartReason;
use slab::Slab;
use std::time::Duration;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(100);
/// Pauses (half a second in all) before asking a process again that closed a new connection without an answer: a killed
/// process accepts connections until the kernel closes its socket.
const PAUSES_FOR_END: u32 = 9;
const MOST_ASKED: u32 = 2;
const BAD_GATEWAY: &str = "502 Bad Gateway";
const UNAVAILABLE: &str = "503 Service Unavailable\r\nRetry-After: 5";

/// A request's process, its connection to it, and what was tried before.
#[derive(Debug)]
pub(super) struct Upstream {
    reuse: Reuse,
    chosen: Option<Option<ProcessEntry>>,
    pub(super) link: Option<usize>,
    due: Option<Tick>,
    tried: Vec<ProcessEntry>,
    asked: u32,
    failed: Option<ProcessEntry>,
    why: Option<String>,
    until: Option<Tick>,
    pauses: u32,
}

impl Upstream {
    pub(super) fn new(reuse: Reuse) -> Upstream {
        Upstream {
            reuse,
            chosen: None,
            link: None,
            due: None,
            tried: Vec::new(),
            asked: 0,
            failed: None,
            why: None,
            until: None,
            pauses: 0,
        }
    }

    pub(super) fn process(&self) -> Option<ProcessEntry> {
        self.chosen.flatten()
    }

    /// Whether the request may be sent again after its process closed the connection without an answer. `was_kept`: the
    /// connection had an earlier request, and may have been closed while this one was on its way.
    pub(super) fn may_ask_again(&mut self, was_kept: bool) -> bool {
        if was_kept {
            self.tried.clear();
            return true;
        }
        if self.asked + 1 >= MOST_ASKED {
            return false;
        }
        self.asked += 1;
        self.failed = self.process();
        self.pauses = 0;
        true
    }
}

impl Gateway {
    pub(super) fn upstream(&mut self, user: User) -> Option<&mut Upstream> {
        upstream_of(user, &mut self.exchanges, &mut self.visits)
    }

    /// Connects to a process, or waits for one. The request itself is sent when its user is pumped.
    pub(super) fn send_on(&mut self, user: User) {
        loop {
            let Some(upstream) = upstream_of(user, &mut self.exchanges, &mut self.visits) else {
                return;
            };
            let chosen = match self.links.choose(&upstream.tried) {
                Choice::Process(chosen) => chosen,
                Choice::Failed(id) if upstream.tried.is_empty() => {
                    let why = format!("the application can't be started (error {id:08x})");
                    return self.refuse(user, UNAVAILABLE, &why);
                }
                Choice::Nobody | Choice::Failed(_) => return self.wait(user),
            };
            upstream.chosen = Some(chosen);
            upstream.tried.extend(chosen);
            self.worker.set_program(self.links.pid(chosen));
            match self.links.connect(chosen, user, upstream.reuse, &self.epoll) {
                Attempt::Link(id) => {
                    upstream.link = Some(id);
                    let is_connecting = self.links.get(id).is_some_and(|link| link.is_connecting);
                    let due = is_connecting.then(|| clock::now() + CONNECT_LIMIT);
                    return self.set_due(user, due);
                }
                Attempt::Busy => {
                    // Try the process again later; it has not seen the request.
                    self.release(user, false);
                    return self.wait(user);
                }
                Attempt::Unreachable(why) => {
                    if self.gives_up(user, why) {
                        return;
                    }
                }
            }
        }
    }

    /// The user is pumped at the next turn.
    pub(super) fn try_again(&mut self, user: User) {
        self.send_on(user);
        self.more.push(user);
    }

    fn wait(&mut self, user: User) {
        let now = clock::now();
        let most = now + self.connect_timeout;
        let Some(upstream) = self.upstream(user) else {
            return;
        };
        upstream.tried.clear();
        let until = *upstream.until.get_or_insert(most);
        if until <= now {
            let why = upstream.why.take().unwrap_or_else(|| "it is not up".to_owned());
            return self.refuse_unreachable(user, UNAVAILABLE, &why);
        }
        upstream.pauses += 1;
        if upstream.pauses < PAUSES_FOR_END {
            upstream.tried.extend(upstream.failed);
        }
        let due = (now + pause(upstream.pauses)).min(until);
        self.set_due(user, Some(due));
    }

    pub(super) fn set_due(&mut self, user: User, due: Option<Tick>) {
        let Some(upstream) = self.upstream(user) else {
            return;
        };
        if let Some(before) = std::mem::replace(&mut upstream.due, due) {
            self.due.remove(&(before, user));
        }
        if let Some(due) = due {
            self.due.insert((due, user));
        }
    }

    /// A pause is over, or a process has not accepted a connection in time.
    pub(super) fn pass_due(&mut self, user: User) {
        self.set_due(user, None);
        match self.upstream(user).map(|upstream| upstream.link) {
            Some(None) => self.try_again(user),
            Some(Some(_)) => self.unreachable(user, "connect: it takes too long".to_owned()),
            None => {}
        }
    }

    pub(super) fn is_connecting(&mut self, user: User, id: usize) -> bool {
        let Some(link) = self.links.get(id) else {
            return true;
        };
        if !link.is_connecting {
            return false;
        }
        if !link.stream.writable && !link.stream.readable {
            return true;
        }
        if let Err(error) = self.links.complete(id) {
            self.unreachable(user, error);
            return true;
        }
        self.set_due(user, None);
        false
    }

    fn unreachable(&mut self, user: User, why: String) {
        if !self.gives_up(user, why) {
            self.try_again(user);
        }
    }

    /// Releases a process that can't be reached. Refuses the request if there is no other one.
    fn gives_up(&mut self, user: User, why: String) -> bool {
        let Some(upstream) = self.upstream(user) else {
            return true;
        };
        let is_alone = upstream.chosen == Some(None);
        upstream.why = Some(why.clone());
        self.release(user, false);
        if is_alone {
            self.refuse_unreachable(user, BAD_GATEWAY, &why);
        }
        is_alone
    }

    fn refuse_unreachable(&mut self, user: User, status: &str, why: &str) {
        log::error!("the application can't be reached: {why}");
        self.refuse(user, status, "the application can't be reached");
    }

    pub(super) fn refuse_unanswered(&mut self, user: User, why: &str) {
        log::error!("the application gave no answer: {why}");
        self.refuse(user, BAD_GATEWAY, "the application gave no answer");
    }

    fn refuse(&mut self, user: User, status: &str, why: &str) {
        match user {
            User::Exchange(index) => self.refuse_exchange(index, status, why),
            User::Visit(index) => self.refuse_visit(index, status, why),
            User::Nobody => {}
        }
    }

    /// Ends the connection to the process. `keeps`: it can carry another request.
    pub(super) fn release(&mut self, user: User, keeps: bool) {
        self.set_due(user, None);
        let Some(upstream) = self.upstream(user) else {
            return;
        };
        let (link, chosen) = (upstream.link.take(), upstream.chosen.take());
        match link {
            Some(id) if keeps => self.links.keep(id),
            Some(id) => self.links.close(id),
            None => {}
        }
        if chosen.is_some_and(|chosen| self.links.give(chosen)) {
            self.worker.ask_restart(RestartReason::MaxRequests);
        }
    }
}

fn upstream_of<'g>(
    user: User,
    exchanges: &'g mut Slab<Exchange>,
    visits: &'g mut Slab<Visit>,
) -> Option<&'g mut Upstream> {
    match user {
        User::Exchange(index) => exchanges.get_mut(index).map(|exchange| &mut exchange.upstream),
        User::Visit(index) => visits.get_mut(index).map(|visit| &mut visit.upstream),
        User::Nobody => None,
    }
}

fn pause(pauses: u32) -> Duration {
    (FIRST_PAUSE * (1 << pauses.saturating_sub(1).min(5))).min(LAST_PAUSE)
}
