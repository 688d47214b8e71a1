//! Actions of the spawning kit.

use super::event::{JourneyId, Token};
use super::handshake::properties::{Address, Socket};
use super::handshake::response::Surroundings;
use super::journey::Journey;
use super::plan::Plan;
use super::report::Report;
use super::step::Route;
use forkyard_base::tick::Tick;
use std::sync::Arc;

/// An action, to be performed at once and in order.
#[derive(Debug, Clone)]
pub enum Action {
    /// For a journey or its process.
    Do(JourneyId, JourneyAction),
    /// The answer to a spawn request.
    Deliver(Token, SpawnOutcome),
    /// Log a failed start that the application caused. Comes before the answer.
    Report(Arc<Report>),
}

/// An action for a journey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JourneyAction {
    /// Create the work directory; ends in `Prepared` or `NotPrepared`.
    Prepare { plan: Arc<Plan>, route: Route },
    /// Execute the env setupper and watch the process, its output and the FIFO; ends in `Forked` or `NotForked`.
    Fork,
    /// Try to connect to the port; ends in `Pinged`, `Silent` or `Taken`.
    Ping,
    /// As `Prepare`, with another port and a new work directory.
    PrepareAgain,
    /// Read the response; ends in `Loaded`.
    Load,
    /// Send SIGKILL to the process and its group.
    Kill,
    /// Send SIGKILL to its other processes; ends in `Swept`.
    Sweep,
    /// Remove the work directory and keep the process.
    EndHandshake,
    /// Close descriptors and remove the work directory and sockets.
    Discard {
        /// The sockets to remove.
        sockets: Vec<Address>,
    },
}

/// The result of a spawn request.
#[derive(Debug, Clone)]
pub enum SpawnOutcome {
    /// The process is up.
    Up(Box<Up>),
    /// It failed; nothing is left of it.
    Failed(Arc<Report>),
}

/// A process that is up.
#[derive(Debug, Clone)]
pub struct Up {
    /// The process's journey, which names its descriptors.
    pub id: JourneyId,
    pub pid: i32,
    pub sockets: Vec<Socket>,
    pub journey: Journey,
    /// When the journey started.
    pub started: Tick,
    /// When it was up.
    pub ended: Tick,
    /// Its environment, if reported.
    pub surroundings: Surroundings,
}
