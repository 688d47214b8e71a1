//! Whether a low request begins when several workers want that at once.
//!
//! A worker stores its claim in its page, and then looks at the pages of all. One that claims later sees this claim, so
//! two can't both miss the other. Of two that see each other, the lower slot stays. The other one may have looked
//! before this claim was there, and begin: the lower slot looks again until that is decided.

use super::Load;
use forkyard_scoreboard::lanes::Mark;

/// What a worker with a claim does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Begin,
    /// A claim of a higher slot is not decided. A worker that looks too often withdraws: the other one may be dead.
    LookAgain,
    Withdraw,
}

/// Returns what the worker of the slot `own` does. `marks`: by slot, looked at after it stored its claim.
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
