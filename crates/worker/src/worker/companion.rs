//! What a runtime keeps beside its worker, and how the worker looks after it between requests.

use super::lobby::Lobby;
use super::service::Service;
use crate::scoreboard::Stage;
use crate::scoreboard::layout::slot;
use crate::sys::clock;
use crate::tick::Tick;
use std::os::fd::BorrowedFd;

/// Whether requests can be taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// They can.
    Ready,
    /// Not yet: they are better left to a sibling.
    Pending,
    /// Never: the worker has to end.
    Lost,
}

/// What is shown of a companion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// Its process; 0: there is none.
    pub pid: i32,
    /// What it is doing.
    pub doing: Doing,
    /// Since when it is up.
    pub since: Tick,
    /// Requests that this process is done with.
    pub served: u64,
    /// How many processes have come up so far.
    pub ups: u64,
}

/// What a companion is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It is being started.
    Starting,
    /// It takes requests.
    Up,
    /// It could not be started, and is not tried again yet.
    Waiting,
}

impl Doing {
    const ALL: [Doing; 3] = [Doing::Starting, Doing::Up, Doing::Waiting];

    /// In a word for people.
    pub const fn name(self) -> &'static str {
        match self {
            Doing::Starting => "starting",
            Doing::Up => "up",
            Doing::Waiting => "waiting",
        }
    }
}

impl Sight {
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

    /// From the scoreboard, where a worker may have written anything; `None`: it has no companion.
    pub fn read(words: [u64; slot::PROGRAM_WORDS]) -> Option<Sight> {
        let [pid, doing, since, served, ups] = words;
        let doing = usize::try_from(doing).ok()?.checked_sub(1)?;
        Some(Sight {
            pid: i32::try_from(pid).unwrap_or(0),
            doing: *Doing::ALL.get(doing)?,
            since: Tick::from_nanos(since),
            served,
            ups,
        })
    }
}

/// A program, or whatever else lives beside a worker.
pub trait Companion {
    /// Readable when it has to be looked after. The same as long as the worker lives.
    fn watch(&self) -> BorrowedFd<'_>;

    /// When it has to be looked after in any case.
    fn deadline(&self) -> Option<Tick>;

    /// Whether requests can be taken up now, as far as was seen.
    fn standing(&self) -> Standing;

    /// What is shown of it.
    fn sight(&self) -> Sight;

    /// Looks after it. Never blocks.
    fn attend(&mut self);

    /// The worker is about to end.
    fn leave(&mut self);
}

/// Waits until requests can be taken up. `false`: the worker was told to finish, or its companion is lost.
pub(super) fn stand_by(
    companion: &mut dyn Companion,
    lobby: &Lobby,
    service: &mut Service,
) -> Result<(), Standing> {
    let mut is_told = false;
    loop {
        match companion.standing() {
            Standing::Ready => return Ok(()),
            Standing::Lost => return Err(Standing::Lost),
            Standing::Pending => {}
        }
        if !is_told {
            is_told = true;
            // It is no idle worker now, and what it holds is better off with one that is.
            service.stage(Stage::Creating);
            // A router has given it nothing yet, or waits: to give it back ends the channel.
            if service.channel.is_none() {
                lobby.hand_over_all(service);
            }
        }
        let left = companion.deadline().map(|deadline| deadline.since(clock::now()));
        if lobby.is_told_to_finish(companion.watch(), left) {
            return Err(Standing::Pending);
        }
        companion.attend();
        show(companion, service);
    }
}

/// Shows in the scoreboard what it is doing.
pub(super) fn show(companion: &dyn Companion, service: &mut Service) {
    let sight = companion.sight();
    service.program = sight.pid;
    service.stamp().program(sight.words());
}
