//! Connections that the kernel temporarily refuses to pass to an instance.
//!
//! The kernel counts descriptors in flight per user and limits an unprivileged user to RLIMIT_NOFILE (unix(7),
//! ETOOMANYREFS). All processes of the router's user count. No event reports new room, so the connection keeps its
//! instance and a timer retries.

use super::answer::Problem;
use super::counters::RequestOutcome;
use super::event_loop::Router;
use crate::applications::event::{Event, Return, SessionId};
use crate::sys::Error;
use nix::errno::Errno;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);
const TIMEOUT: Duration = Duration::from_secs(30);
const SAY_INTERVAL: Duration = Duration::from_secs(60);

/// Returns whether any instance's connection would fail with this error.
pub(super) fn is_shortage(error: &Error) -> bool {
    matches!(error.errno, Errno::ETOOMANYREFS | Errno::ENOBUFS | Errno::ENOMEM)
}

impl Router {
    /// Keeps the connection and its instance, and retries later.
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

    pub(super) fn pass_again(&mut self, id: u64) {
        let session = self.clients.get(id).and_then(|client| client.session);
        let held = session.and_then(|session| Some((session, self.sessions.get(&session)?.instance?)));
        match held {
            Some((session, number)) => self.pass(id, session, number),
            // The instance sent a message about a request it never received.
            None => self.refuse(id, Problem::Unavailable),
        }
    }

    /// Cancels a session that was not passed on.
    pub(super) fn give_back(&mut self, session: SessionId) {
        let holder = self.sessions.remove(&session);
        self.tell(match holder.and_then(|holder| holder.instance) {
            Some(_) => Event::Close(session, Return::Ok),
            None => Event::Cancel(session),
        });
    }
}
