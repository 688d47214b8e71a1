//! The autopilot's choice: the number of workers changes while a generation serves.
//!
//! More are forked when they are needed. Workers beyond the choice, or beyond `Generation::ceiling`, leave: idle ones first, busy ones after their
//! request, of either kind the largest first. A worker that leaves counts until it is gone.

use super::event::{Choice, GenerationId, Row, WorkerId};
use super::generation::{GenerationState, SnapshotNumber};
use super::leave::{Going, LeaveCause};
use super::manager::{Manager, Step};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Returns how many workers may be forked in addition to `all`. `None`: no choice limits them.
pub(super) fn room(choice: Option<Choice>, all: u32) -> Option<u32> {
    let choice = choice?;
    Some(match choice.may_fork {
        true => choice.most.max(1).saturating_sub(all),
        // A pool without a worker would serve no client.
        false => u32::from(all == 0),
    })
}

/// Which of the workers leave, so that `most` stay.
fn beyond(most: u32, kept: &[WorkerId], rows: &[Row]) -> Vec<WorkerId> {
    let rows: BTreeMap<WorkerId, &Row> = rows.iter().map(|row| (row.worker, row)).collect();
    let mut order = kept.to_vec();
    order.sort_by_key(|worker| {
        let row = rows.get(worker);
        // A worker without a row starts, and uses little.
        let is_idle = row.is_none_or(|row| row.idle);
        (!is_idle, Reverse(row.map_or(0, |row| row.memory)), *worker)
    });
    let count = kept
        .len()
        .saturating_sub(usize::try_from(most.max(1)).unwrap_or(usize::MAX));
    order.truncate(count);
    order
}

impl Manager {
    pub(super) fn chosen(&mut self, id: GenerationId, choice: Choice, step: &mut Step<'_>) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        let Some(before) = generation.policy.choice.replace(choice) else {
            // The number of this pool is the operator's.
            generation.policy.choice = None;
            return;
        };
        if before == choice || generation.state != GenerationState::Serving {
            return;
        }
        let is_more = choice.most > before.most || (choice.may_fork && !before.may_fork);
        if self.worker_counts(id).kept > choice.most {
            let number = self.take_snapshot(id, step);
            if let Some(generation) = self.generations.get_mut(&id) {
                generation.trim_on = Some(number);
            }
        } else if is_more {
            self.tell_room(id, step);
            self.freed(id, step);
        }
    }

    /// Has workers beyond the choice or the ceiling leave.
    pub(super) fn trim(
        &mut self,
        id: GenerationId,
        number: SnapshotNumber,
        rows: &[Row],
        step: &mut Step<'_>,
    ) {
        let Some(generation) = self.generations.get_mut(&id) else {
            return;
        };
        if generation.trim_on.is_none_or(|wanted| number < wanted) {
            return;
        }
        generation.trim_on = None;
        let chosen = generation.policy.choice.map(|choice| choice.most);
        let most = chosen.into_iter().chain(generation.ceiling).min();
        let Some(most) = most.filter(|_| generation.state == GenerationState::Serving) else {
            return;
        };
        let workers = self.children.of(id).into_iter();
        let is_kept = |id: &WorkerId| {
            let worker = self.children.worker(*id);
            worker.is_some_and(|worker| worker.going == Going::Kept)
        };
        let kept: Vec<WorkerId> = workers.filter(is_kept).collect();
        for worker in beyond(most, &kept, rows) {
            self.dismiss(worker, LeaveCause::Surplus, step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_base::tick::Tick;

    fn row(worker: u64, idle: bool, memory: u64) -> Row {
        Row {
            worker: WorkerId(worker),
            idle,
            has_room: false,
            since: Tick::ZERO,
            running: !idle,
            executing: false,
            kept: 0,
            memory,
        }
    }

    #[test]
    fn a_worker_that_leaves_counts() {
        let choice = |most, may_fork| Some(Choice { most, may_fork });
        for (choice, all, expected) in [
            (None, 9, None),
            (choice(4, true), 1, Some(3)),
            (choice(4, true), 4, Some(0)),
            (choice(4, true), 9, Some(0)),
            (choice(4, false), 1, Some(0)),
            (choice(4, false), 0, Some(1)),
            (choice(0, true), 0, Some(1)),
        ] {
            assert_eq!(room(choice, all), expected, "{choice:?} {all}");
        }
    }

    #[test]
    fn idle_workers_leave_first_and_of_either_kind_the_largest() {
        let rows = [
            row(1, false, 90),
            row(2, true, 5),
            row(3, false, 10),
            row(4, true, 7),
        ];
        let kept: Vec<WorkerId> = (1..=5).map(WorkerId).collect();
        let leaves = |most| -> Vec<u64> { beyond(most, &kept, &rows).iter().map(|it| it.0).collect() };
        assert_eq!(leaves(9), [0_u64; 0]);
        assert_eq!(leaves(3), [4, 2]);
        assert_eq!(leaves(1), [4, 2, 5, 1]);
        assert_eq!(leaves(0), [4, 2, 5, 1], "one stays");
    }
}
