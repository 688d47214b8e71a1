//! A runtime's helper process (such as a FastCGI program), polled between requests.

use super::acceptor::Acceptor;
use super::service::Service;
use forkyard_base::tick::Tick;
use forkyard_scoreboard::RequestStage;
use forkyard_scoreboard::layout::slot;
use forkyard_sys::clock;
use std::os::fd::BorrowedFd;

/// Whether the backend accepts requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendState {
    /// It accepts requests.
    Ready,
    /// It does not accept requests yet; siblings should serve.
    Pending,
    /// It will never accept requests again; the worker must exit.
    Lost,
}

/// A backend's state for the scoreboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendStatus {
    /// The backend's process id; 0 if there is no process.
    pub pid: i32,
    /// Its current stage.
    pub doing: BackendStage,
    /// When it came up.
    pub since: Tick,
    /// Requests finished by this process.
    pub served: u64,
    /// How often a process has started.
    pub ups: u64,
}

/// A backend's stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendStage {
    /// It is starting.
    Starting,
    /// It accepts requests.
    Up,
    /// It did not start or stay up; requests are refused.
    Failing,
}

impl BackendStage {
    const ALL: [BackendStage; 3] = [BackendStage::Starting, BackendStage::Up, BackendStage::Failing];

    /// The stage as a word.
    pub const fn name(self) -> &'static str {
        match self {
            BackendStage::Starting => "starting",
            BackendStage::Up => "up",
            BackendStage::Failing => "failing",
        }
    }
}

impl BackendStatus {
    fn words(self) -> [u64; slot::PROGRAM_WORDS] {
        [
            u64::try_from(self.pid).unwrap_or(0),
            self.doing as u64 + 1,
            self.since.as_nanos(),
            self.served,
            self.ups,
        ]
    }

    /// Reads untrusted words; `None`: no backend.
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

/// A program, or another helper of a runtime.
pub trait Backend {
    /// Readable when it needs a poll. Constant for the life of the worker.
    fn watch(&self) -> BorrowedFd<'_>;

    /// When to poll at the latest.
    fn deadline(&self) -> Option<Tick>;

    /// The backend's last known state.
    fn standing(&self) -> BackendState;

    /// The backend's state for the scoreboard.
    fn status(&self) -> BackendStatus;

    /// Does pending work; never blocks.
    fn poll(&mut self);

    /// Prepares for the worker's exit.
    fn leave(&mut self);
}

/// Waits until the backend accepts requests. Returns false if the worker must exit.
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
            service.stage(RequestStage::Creating);
            if !service.router.is_there() {
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

pub(super) fn show(backend: &dyn Backend, service: &mut Service) {
    let status = backend.status();
    service.wear.program = status.pid;
    service.slot_writer().program(status.words());
}
