//! What operators ask of an application pool: passed on to its router, whose answer is passed back.

use super::super::Edge;
use super::RouterEdge;
use crate::control::protocol::{Answer, Applications, StartError, Starting};
use crate::master::event::PoolId;
use crate::master::ledger::At;
use crate::router::orders::{Order, ToRouter};
use crate::sys::clock;
use crate::tick::Tick;
use serde_json::Value;
use std::time::Duration;

/// Most questions that a router has not answered.
const MOST_ASKED: usize = 1000;
/// How long the status waits for the routers.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);

/// Who asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::master::effects) enum Asked {
    /// Nobody waits for the answer.
    Nobody,
    /// A conversation over the control socket.
    Session(u64),
    /// The status of a pool, for this conversation.
    View(u64, String),
}

/// A status that waits for routers.
#[derive(Debug)]
pub(in crate::master::effects) struct PendingStatus {
    asker: u64,
    until: Tick,
    waiting: usize,
    views: Vec<(String, Value)>,
}

impl RouterEdge {
    /// Asks the router.
    pub(super) fn ask(&mut self, what: Order, asked: Asked) -> bool {
        if self.asked.len() >= MOST_ASKED || self.router.pid().is_none() {
            return false;
        }
        self.last_asked += 1;
        let order = self.last_asked;
        self.asked.insert(order, asked);
        self.say(&ToRouter::Order { order, what }, Vec::new());
        true
    }
}

impl Edge {
    /// The router has answered.
    pub(super) fn answered(&mut self, asked: Asked, result: Result<Value, String>) {
        match asked {
            Asked::Nobody => {}
            Asked::Session(asker) => {
                let answer = match result {
                    Ok(value) => Answer::Done { value },
                    Err(message) => Answer::refusal(message),
                };
                self.answer(asker, &answer);
            }
            Asked::View(asker, name) => {
                let Some(at) = self.statuses.iter().position(|status| status.asker == asker) else {
                    return;
                };
                let status = &mut self.statuses[at];
                status.waiting = status.waiting.saturating_sub(1);
                if let Ok(view) = result {
                    status.views.push((name, view));
                }
                if status.waiting == 0 {
                    self.finish_status(at);
                }
            }
        }
    }

    /// Answers with the status, once the routers have said what they know.
    pub(in crate::master) fn begin_status(&mut self, asker: u64) {
        let mut waiting = 0;
        for edge in self.routers.values_mut() {
            let name = edge.template.name.clone();
            waiting += usize::from(edge.ask(Order::View, Asked::View(asker, name)));
        }
        self.statuses.retain(|status| status.asker != asker);
        self.statuses.push(PendingStatus {
            asker,
            until: clock::now() + STATUS_PATIENCE,
            waiting,
            views: Vec::new(),
        });
        if waiting == 0 {
            self.finish_status(self.statuses.len() - 1);
        }
    }

    fn finish_status(&mut self, at: usize) {
        let PendingStatus { asker, views, .. } = self.statuses.remove(at);
        let status = self.status(&views);
        self.answer(asker, &Answer::Status(status));
    }

    /// What there is to say of an application pool.
    pub(in crate::master::effects) fn applications_status(
        &self,
        id: PoolId,
        views: &[(String, Value)],
    ) -> Option<Applications> {
        let edge = self.routers.get(&id)?;
        let (router, scout) = edge.pids();
        let starting = edge.ledger.iter().filter_map(|(number, instance)| {
            let step = match instance.at {
                At::Looking => "looked at",
                At::Ordered(_) => "ordered",
                At::Made(..) => "loading",
                At::Up(..) => return None,
            };
            Some(Starting {
                instance: number,
                application: instance.application.display().to_string(),
                step: step.to_owned(),
            })
        });
        Some(Applications {
            router,
            scout,
            max: edge.max,
            starting: starting.collect(),
            errors: edge.last_errors.iter().map(StartError::from).collect(),
            book: views
                .iter()
                .find(|(name, _)| *name == edge.template.name)
                .map(|(_, view)| view.clone()),
        })
    }

    pub(super) fn asking_deadline(&self) -> Option<Tick> {
        self.statuses.iter().map(|status| status.until).min()
    }

    pub(super) fn tend_asked(&mut self, now: Tick) {
        while let Some(at) = self.statuses.iter().position(|status| status.until <= now) {
            self.finish_status(at);
        }
    }

    /// Passes an order on to the router of a pool. Whoever asked is answered when the router has, or at once if there is
    /// none.
    pub(in crate::master) fn pass_on(&mut self, id: PoolId, asker: u64, what: Order) {
        let asked = self
            .routers
            .get_mut(&id)
            .is_some_and(|edge| edge.ask(what, Asked::Session(asker)));
        if !asked {
            let message = "the pool's router does not run right now; ask again".to_owned();
            self.answer(asker, &Answer::refusal(message));
        }
    }
}
