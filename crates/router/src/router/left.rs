//! Clients that leave while their request waits for an instance.
//!
//! Such a request is skipped by the rule of workers: only a GET or HEAD that has waited for a second. The parameters are
//! read only then. All other requests keep their place.

use super::event_loop::Router;
use super::refusals::{params, request};
use super::state::ClientState;
use fastcgi::{Params, Responder};
use forkyard_config::{Abandoned, Overload};
use forkyard_protocol::dead_work::DeadCount;

use forkyard_sys::other_end::{self, OtherSide};
use forkyard_worker::CLIENT_CLOSED;

impl Router {
    /// Looks at the end of a client whose request waits, after a report of epoll.
    pub(super) fn may_have_left(&mut self, id: u64) {
        let rules = &self.settings.pool.load.overload;
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let has_left = match other_end::look(client.socket()) {
            OtherSide::Connected => false,
            OtherSide::HalfClosed => rules.abandoned == Abandoned::SkipHalfClosed,
            OtherSide::Closed => rules.abandoned != Abandoned::Run,
        };
        if !has_left {
            return;
        }
        let mut responder = Responder::new(self.settings.limits());
        let mut buffer = Vec::new();
        let bytes = request(client.socket(), &client.bytes, &mut buffer);
        let left = params(&mut responder, bytes).is_some_and(|params| may_be_skipped(params, rules));
        client.left = left;
        self.skip_if_left(id);
    }

    /// Closes the connection of a client that has left, once its request has waited for long enough.
    pub(super) fn skip_if_left(&mut self, id: u64) {
        let now = self.now;
        let Some(client) = self.clients.get_mut(id).filter(|client| client.left) else {
            return;
        };
        let waited = now.since(client.since);
        if waited < Overload::PATIENCE {
            // In the other state, the inspector's answer comes first.
            if client.state() == ClientState::Waiting {
                self.clients.expire_in(id, now, Overload::PATIENCE - waited);
            }
            return;
        }
        if let Some(known) = &client.known {
            self.apps.count(&known.name, |counters| &mut counters.abandoned);
        }
        self.note_refused(id, CLIENT_CLOSED, Some(DeadCount::Abandoned));
        self.close(id);
    }
}

fn may_be_skipped(params: &Params, rules: &Overload) -> bool {
    rules.may_skip(|name| params.get(name).unwrap_or_default())
}
