//! What a runtime keeps beside its worker, and how the worker looks after it between requests.

use super::acceptor::Acceptor;
use super::service::Service;
use crate::scoreboard::RequestStage;
use crate::scoreboard::layout::slot;
use crate::sys::clock;
use crate::tick::Tick;
use std::os::fd::BorrowedFd;

/// Whether requests can be taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendState {
    /// They can.
    Ready,
    /// Not yet: they are better left to a sibling.
    Pending,
    /// Never: the worker has to end.
    Lost,
}

/// What is shown of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendStatus {
    /// Its process; 0: there is none.
    pub pid: i32,
    /// What it is doing.
    pub doing: BackendStage,
    /// Since when it is up.
    pub since: Tick,
    /// Requests that this process is done with.
    pub served: u64,
    /// How many processes have come up so far.
    pub ups: u64,
}

/// What a backend is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendStage {
    /// It is being started.
    Starting,
    /// It takes requests.
    Up,
    /// It could not be started or did not stay up, and requests are refused.
    Failing,
}

impl BackendStage {
    const ALL: [BackendStage; 3] = [BackendStage::Starting, BackendStage::Up, BackendStage::Failing];

    /// In a word for people.
    pub const fn name(self) -> &'static str {
        match self {
            BackendStage::Starting => "starting",
            BackendStage::Up => "up",
            BackendStage::Failing => "failing",
        }
    }
}

impl BackendStatus {
    /// For the scoreboard.
    fn words(self) -> [u64; slot::PROGRAM_WORDS] {
        [
            u64::try_from(self.pid).unwrap_or(0),
            self.doing as u64 + 1,
            self.since.as_nanos(),
            self.served,
            self.ups,
        ]
    }

    /// From the scoreboard, where a worker may have written anything; `None`: it has no backend.
    pub fn read(words: [u64; slot::PROGRAM_WORDS]) -> Option<BackendStatus> {
        let [pid, doing, since, served, ups] = words;
        let doing = usize::try_from(doing).ok()?.checked_sub(1)?;
        Some(BackendStatus {
            pid: i32::try_from(pid).unwrap_or(0),
            doing: *BackendStage::ALL.get(doing)?,
            since: Tick::from_nanos(since),
            served,
            ups,
        })
    }
}

/// A program, or whatever else lives beside a worker.
pub trait Backend {
    /// Readable when it has to be looked after. The same as long as the worker lives.
    fn watch(&self) -> BorrowedFd<'_>;

    /// When it has to be looked after in any case.
    fn deadline(&self) -> Option<Tick>;

    /// Whether requests can be taken up now, as far as was seen.
    fn standing(&self) -> BackendState;

    /// What is shown of it.
    fn status(&self) -> BackendStatus;

    /// Looks after it. Never blocks.
    fn poll(&mut self);

    /// The worker is about to end.
    fn leave(&mut self);
}

/// Waits until requests can be taken up. `false`: the worker was told to finish, or its backend is lost.
pub(super) fn stand_by(
    backend: &mut dyn Backend,
    acceptor: &Acceptor,
    service: &mut Service,
) -> Result<(), BackendState> {
    let mut is_told = false;
    loop {
        match backend.standing() {
            BackendState::Ready => return Ok(()),
            BackendState::Lost => return Err(BackendState::Lost),
            BackendState::Pending => {}
        }
        if !is_told {
            is_told = true;
            // It is no idle worker now, and what it holds is better off with one that is.
            service.stage(RequestStage::Creating);
            // A router has given it nothing yet, or waits: to give it back ends the channel.
            if service.channel.is_none() {
                acceptor.hand_off_all(service);
            }
        }
        let left = backend.deadline().map(|deadline| deadline.since(clock::now()));
        if acceptor.is_told_to_finish(backend.watch(), left) {
            return Err(BackendState::Pending);
        }
        backend.poll();
        show(backend, service);
    }
}

/// Shows in the scoreboard what it is doing.
pub(super) fn show(backend: &dyn Backend, service: &mut Service) {
    let status = backend.status();
    service.program = status.pid;
    service.slot_writer().program(status.words());
}
