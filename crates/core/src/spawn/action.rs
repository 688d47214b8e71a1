//! What the machine wants done.

use super::event::{JourneyId, Token};
use super::handshake::properties::{Address, Socket};
use super::handshake::response::Surroundings;
use super::journey::Journey;
use super::plan::Plan;
use super::report::Report;
use super::step::Route;
use crate::tick::Tick;
use std::sync::Arc;

/// To be carried out at once and in order.
#[derive(Debug, Clone)]
pub enum Action {
    /// For a journey, or the process that it led to.
    Do(JourneyId, JourneyAction),
    /// A wish has been granted or has failed.
    Deliver(Token, SpawnOutcome),
    /// A start failed, and the application is to blame: to be logged. Comes before the answer to the request for it.
    Report(Arc<Report>),
}

/// What is to be done for a journey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JourneyAction {
    /// Make the work directory: answered by `Prepared` or `NotPrepared`.
    Prepare {
        /// What is to be spawned.
        plan: Arc<Plan>,
        /// By which route.
        route: Route,
    },
    /// Fork and execute the env setupper, and watch the process, its output and the FIFO: `Forked` or `NotForked`.
    Fork,
    /// Try to connect to the port: `Pinged`, `Silent` or `Taken`.
    Ping,
    /// Give up the port and take another one, in a work directory made anew: as `Prepare`.
    PrepareAgain,
    /// Read the response: `Loaded`.
    Load,
    /// SIGKILL to the process and its group.
    Kill,
    /// SIGKILL to whatever else belongs to it: `Swept`.
    Sweep,
    /// It is up: give up the work directory, keep the process.
    EndHandshake,
    /// Give up all: descriptors and work directory, with the sockets that it has made.
    Discard {
        /// The sockets to be removed.
        sockets: Vec<Address>,
    },
}

/// How a wish came out.
#[derive(Debug, Clone)]
pub enum SpawnOutcome {
    /// The process is up.
    Up(Box<Up>),
    /// It is not, and this is why. Nothing of it is left.
    Failed(Arc<Report>),
}

/// A process that is up.
#[derive(Debug, Clone)]
pub struct Up {
    /// Its journey: the effects have its descriptors under that name.
    pub id: JourneyId,
    /// Its pid.
    pub pid: i32,
    /// Its sockets.
    pub sockets: Vec<Socket>,
    /// How it came to be.
    pub journey: Journey,
    /// When that began.
    pub started: Tick,
    /// When it was up.
    pub ended: Tick,
    /// Its surroundings, where it told.
    pub surroundings: Surroundings,
}
