//! The preloader of one application: what is known of it, who waits for it, when it is to go.

mod life;
pub mod wire;

pub(super) use life::{Cause, Force, Life, Order};

use super::event::JourneyId;
use super::handshake::properties::{Address, Socket};
use super::handshake::response::Surroundings;
use crate::tick::Tick;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long it has to go once its standard input was closed.
const ASKED: Duration = Duration::from_secs(5);
/// How long it has to go after SIGTERM.
const TERMINATED: Duration = Duration::from_secs(1);
/// When it is looked after again once it was killed.
const KILLED: Duration = Duration::from_secs(1);

/// A preloader.
#[derive(Debug)]
pub(super) struct Preloader {
    /// Where it is in its life.
    pub(super) life: Life,
    /// The journey that led to it, or is to.
    pub(super) journey: Option<JourneyId>,
    /// Its sockets; empty until it is up.
    pub(super) sockets: Vec<Socket>,
    /// Its surroundings, for reports of its forks.
    pub(super) surroundings: Surroundings,
    /// Journeys that wait until it is up.
    pub(super) waiting: BTreeSet<JourneyId>,
    /// Journeys that it has been asked for.
    pub(super) asked: BTreeSet<JourneyId>,
    /// When something is due: it has been idle for long enough, or did not go in time.
    pub(super) due: Option<Tick>,
}

impl Preloader {
    /// None yet.
    pub(super) fn new() -> Preloader {
        Preloader {
            life: Life::Absent,
            journey: None,
            sockets: Vec::new(),
            surroundings: Surroundings::default(),
            waiting: BTreeSet::new(),
            asked: BTreeSet::new(),
            due: None,
        }
    }

    /// Where it takes commands.
    pub(super) fn address(&self) -> Option<&Address> {
        let mut sockets = self
            .sockets
            .iter()
            .filter(|socket| socket.protocol == "preloader");
        sockets.next().map(|socket| &socket.address)
    }

    /// Its state after `cause`, with the time at which the next is due; says what is to be done.
    pub(super) fn change(&mut self, cause: Cause, now: Tick) -> Order {
        let (life, order) = self.life.after(cause);
        self.life = life;
        match order {
            Order::Stop(Force::Ask) => self.due = Some(now + ASKED),
            Order::Stop(Force::Terminate) => self.due = Some(now + TERMINATED),
            Order::Stop(Force::Kill) => self.due = Some(now + KILLED),
            Order::Start => self.due = None,
            Order::Nothing => {}
        }
        order
    }

    /// It has nothing to do from now on, or it has: sets the time at which it is to go.
    pub(super) fn rest(&mut self, idle: Duration, now: Tick) {
        if self.life != Life::Ready {
            return;
        }
        let busy = !self.asked.is_empty() || !self.waiting.is_empty();
        self.due = (!busy && !idle.is_zero()).then(|| now + idle);
    }

    /// Nothing is left of it.
    pub(super) fn forget(&mut self) {
        self.journey = None;
        self.sockets.clear();
        self.surroundings = Surroundings::default();
        self.asked.clear();
        self.due = None;
    }
}
