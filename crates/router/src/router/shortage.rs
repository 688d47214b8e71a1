//! A connection that the kernel does not let pass, through no fault of the instance that is to have it.
//!
//! Descriptors that were sent and not yet received are counted by user, and an unprivileged process may have no more of them
//! under way than it may have open (unix(7), ETOOMANYREFS). All processes of the router's user count, so others may use that
//! up. Whether there is room again no event tells: the connection keeps its instance, and is tried again by a timer.

use super::answer::Problem;
use super::counters::RequestOutcome;
use super::run::Router;
use crate::applications::event::{Event, Return, SessionId};
use crate::sys::Error;
use nix::errno::Errno;
use std::time::Duration;

/// How long a connection waits before it is tried again.
const PAUSE: Duration = Duration::from_millis(50);
/// How long it is tried where `max_request_queue_time` does not say less.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often the log is told at most.
const SAY_INTERVAL: Duration = Duration::from_secs(60);

/// Whether the kernel lacks what every instance's connection would need.
pub(super) fn is_shortage(error: &Error) -> bool {
    matches!(error.errno, Errno::ETOOMANYREFS | Errno::ENOBUFS | Errno::ENOMEM)
}

impl Router {
    /// A connection can't be passed on now: it waits, with its instance.
    pub(super) fn wait_for_room(&mut self, id: u64, session: SessionId, errno: Errno) {
        let now = self.now;
        let Some(client) = self.clients.get(id) else {
            return;
        };
        let since = *client.stuck.get_or_insert(now);
        let end = since + TIMEOUT;
        let queue_time = self.settings.max_request_queue_time;
        let due = queue_time
            .map(|time| client.since + time)
            .filter(|due| *due < end);
        let is_queued_too_long = due.is_some_and(|due| due <= now);
        if is_queued_too_long || end <= now {
            let (outcome, problem) = match is_queued_too_long {
                true => (RequestOutcome::TimedOut, Problem::TimedOut),
                false => (RequestOutcome::Refused, Problem::Unavailable),
            };
            if let Some(known) = client.known.clone() {
                self.apps.count(&known.name, outcome);
            }
            self.give_back(session);
            return self.refuse(id, problem);
        }
        let next = due.map_or(now + PAUSE, |due| due.min(now + PAUSE));
        client.expires = Some(next);
        self.set_timer(id, next);
        // A client that leaves meanwhile is noticed.
        self.watch_end(id);
        if self
            .shortage_said
            .is_none_or(|said| now.since(said) >= SAY_INTERVAL)
        {
            self.shortage_said = Some(now);
            log::warn!(
                "[pool {}] connections can't be passed on to instances: sendmsg: {errno}; trying again",
                self.pool.name
            );
        }
    }

    /// Tries again what waits for room.
    pub(super) fn pass_again(&mut self, id: u64) {
        let session = self.clients.get(id).and_then(|client| client.session);
        let held = session.and_then(|session| Some((session, self.sessions.get(&session)?.instance?)));
        match held {
            Some((session, number)) => self.pass(id, session, number),
            // The instance has said something of a request that it was not given.
            None => self.refuse(id, Problem::Unavailable),
        }
    }

    /// What waits for an instance, or has one without being passed on, does so no more.
    pub(super) fn give_back(&mut self, session: SessionId) {
        let holder = self.sessions.remove(&session);
        self.tell(match holder.and_then(|holder| holder.instance) {
            Some(_) => Event::Close(session, Return::Ok),
            None => Event::Cancel(session),
        });
    }
}
