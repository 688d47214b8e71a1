//! Decides which low requests begin when several workers want to begin one at once.
//!
//! A worker stores its claim in its page, and then reads the pages of all workers. A later claimant sees this claim, so two
//! workers can't both miss each other. If both see each other, the lower slot wins. The higher slot may have read the pages
//! before this claim was stored, and begin. So the lower slot reads again until the higher one has decided.

use super::Load;
use forkyard_scoreboard::lanes::Mark;

/// The next action of a worker with a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Begin,
    /// A claim of a higher slot is undecided. A worker that looks too often withdraws, because the other one may be dead.
    LookAgain,
    Withdraw,
}

/// Returns the next action of the worker in the slot `own`. `marks`: by slot, read after the worker stored its claim.
pub fn judge(marks: impl IntoIterator<Item = Mark>, own: usize, total: u32, reserve: u32) -> Verdict {
    let (mut high, mut sure, mut open) = (0_u32, 0_u32, 0_u32);
    for (slot, mark) in marks.into_iter().enumerate() {
        match mark {
            Mark::Idle => {}
            Mark::Runs(lane) if lane.is_high() => high += 1,
            Mark::Runs(_) => sure += 1,
            Mark::Claims if slot < own => sure += 1,
            Mark::Claims if slot == own => {}
            Mark::Claims => open += 1,
        }
    }
    let admits = |low| {
        let load = Load {
            high,
            low,
            total,
            reserve,
        };
        load.admits_low()
    };
    if !admits(sure) {
        Verdict::Withdraw
    } else if admits(sure + open) {
        Verdict::Begin
    } else {
        Verdict::LookAgain
    }
}
