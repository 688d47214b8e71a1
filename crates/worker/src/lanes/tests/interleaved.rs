//! All orders of the steps of three workers, with a death before each.

use super::super::{Lane, Load, Mark, Verdict, judge};
use std::collections::HashSet;

const WORKERS: usize = 3;
type Marks = [Mark; WORKERS];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Free,
    /// It has a claim, and has looked at so many pages.
    Looks(usize, Marks),
    Runs,
    Done,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    marks: Marks,
    steps: [Step; WORKERS],
    /// Workers that had a high request before the first claim. One that begins later begins in any case.
    early: [bool; WORKERS],
    has_begun: bool,
    has_died: bool,
}

#[derive(Debug, Clone, Copy)]
struct Pool {
    total: u32,
    reserve: u32,
}

impl State {
    fn with(mut self, worker: usize, mark: Mark, step: Step) -> State {
        self.marks[worker] = mark;
        self.steps[worker] = step;
        self
    }

    fn count(&self, mark: Mark) -> u32 {
        let marks = self.marks.iter().filter(|found| **found == mark);
        u32::try_from(marks.count()).unwrap()
    }

    /// Returns the states that one step of this worker leads to.
    fn after(self, worker: usize, pool: Pool) -> Vec<State> {
        let mark = self.marks[worker];
        let mut next = match self.steps[worker] {
            Step::Free => vec![
                self.with(worker, Mark::Claims, Step::Looks(0, Marks::default())),
                self.with(worker, Mark::Runs(Lane::People), Step::Runs),
            ],
            Step::Looks(slot, mut seen) if slot < WORKERS => {
                seen[slot] = self.marks[slot];
                vec![self.with(worker, mark, Step::Looks(slot + 1, seen))]
            }
            Step::Looks(_, seen) => vec![self.decide(worker, &seen, pool)],
            Step::Runs => vec![self.with(worker, Mark::Idle, Step::Done)],
            // The master clears the page of a dead worker.
            Step::Dead => return vec![self.with(worker, Mark::Idle, Step::Done)],
            Step::Done => return Vec::new(),
        };
        let mut dead = self.with(worker, mark, Step::Dead);
        dead.has_died = true;
        next.push(dead);
        next
    }

    /// Decides, and checks that the low requests that have begun leave the reserve.
    fn decide(self, worker: usize, seen: &Marks, pool: Pool) -> State {
        match judge(*seen, worker, pool.total, pool.reserve) {
            Verdict::Begin => {
                let slots = 0..WORKERS;
                let high =
                    slots.filter(|slot| self.early[*slot] && self.marks[*slot] == Mark::Runs(Lane::People));
                let high = high.count();
                let load = Load {
                    high: u32::try_from(high).unwrap(),
                    low: self.count(Mark::Runs(Lane::Bots)),
                    total: pool.total,
                    reserve: pool.reserve,
                };
                assert!(load.admits_low(), "{pool:?}: worker {worker} begins in {self:?}");
                let mut state = self.with(worker, Mark::Runs(Lane::Bots), Step::Runs);
                state.has_begun = true;
                state
            }
            Verdict::LookAgain => self.with(worker, Mark::Claims, Step::Looks(0, Marks::default())),
            Verdict::Withdraw => self.with(worker, Mark::Idle, Step::Done),
        }
    }
}

/// Returns the number of all later states, and the last ones.
fn explore(first: Vec<State>, pool: Pool, is_wanted: impl Fn(&State) -> bool) -> (usize, Vec<State>) {
    let mut found: HashSet<State> = first.iter().copied().collect();
    let mut open = first;
    let mut ends = Vec::new();
    while let Some(state) = open.pop() {
        let next = (0..WORKERS).flat_map(|worker| state.after(worker, pool));
        let next: Vec<State> = next.filter(&is_wanted).collect();
        if next.is_empty() {
            ends.push(state);
        }
        open.extend(next.into_iter().filter(|state| found.insert(*state)));
    }
    (found.len(), ends)
}

fn start(early: [bool; WORKERS]) -> State {
    State {
        marks: early.map(|is_high| {
            if is_high {
                Mark::Runs(Lane::People)
            } else {
                Mark::Idle
            }
        }),
        steps: early.map(|is_high| if is_high { Step::Runs } else { Step::Free }),
        early,
        has_begun: false,
        has_died: false,
    }
}

#[test]
fn no_order_of_steps_begins_too_many_low_requests() {
    let firsts: Vec<State> = (0..1 << WORKERS)
        .map(|bits: usize| start(std::array::from_fn(|slot| bits & (1 << slot) != 0)))
        .collect();
    for (total, reserve) in [(3, 1), (3, 2), (4, 1), (4, 2), (1, 1)] {
        let pool = Pool { total, reserve };
        let (states, ends) = explore(firsts.clone(), pool, |_| true);
        assert!(states > 1_000 && !ends.is_empty(), "{pool:?}: {states} states");
        assert!(ends.iter().any(|end| end.has_begun), "{pool:?}");
    }
}

#[test]
fn of_workers_that_claim_at_once_one_begins() {
    for (total, reserve) in [(3, 1), (3, 2), (1, 1)] {
        let pool = Pool { total, reserve };
        let mut first = start([false; WORKERS]);
        first.marks = [Mark::Claims; WORKERS];
        first.steps = [Step::Looks(0, Marks::default()); WORKERS];
        let (_, ends) = explore(vec![first], pool, |state| !state.has_died);
        assert!(!ends.is_empty());
        assert!(ends.iter().all(|end| end.has_begun), "{pool:?}: {ends:?}");
    }
}
