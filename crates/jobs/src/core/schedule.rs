//! When schedules push their jobs. The time of the next one is kept in the store, so that a timer that is lost costs nothing.

use forkyard_config::cron::Times;
use forkyard_config::{Missed, Schedule};

/// One that is later than this was missed: the daemon did not run, or the machine slept.
const LATE_MS: i64 = 60_000;
/// Jobs pushed for missed times at most.
const MOST_MISSED: usize = 100;
/// Missed times that are looked at: a year of every minute.
const MOST_LOOKS: usize = 600_000;

/// A schedule and when it is next due.
#[derive(Debug, Clone)]
pub struct Planned {
    pub schedule: Schedule,
    times: Times,
    /// Milliseconds since 1970; `None`: never again.
    pub next_ms: Option<i64>,
}

/// What is due of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    /// The schedule's name.
    pub name: String,
    /// The times for which a job is pushed, oldest first. There may be none: the times were missed.
    pub times: Vec<i64>,
    /// When it is due after them.
    pub next_ms: Option<i64>,
}

/// All schedules.
#[derive(Debug, Clone, Default)]
pub struct Schedules {
    planned: Vec<Planned>,
}

/// What makes a schedule's times: when this changes, what was kept of the old ones means nothing.
pub fn spec(schedule: &Schedule) -> String {
    format!("{} {}", schedule.cron, schedule.timezone)
}

impl Schedules {
    /// Those of a configuration. `kept`: the spec that the store has with a schedule's name, and when it is next due.
    ///
    /// One whose expression can't be read any more, because its time zone is gone, is told of in the result.
    pub fn new(
        schedules: &[Schedule],
        kept: impl Fn(&str) -> Option<(String, i64)>,
        now_ms: i64,
    ) -> (Schedules, Vec<String>) {
        let (mut planned, mut complaints) = (Vec::new(), Vec::new());
        for schedule in schedules {
            match Times::new(&schedule.cron, &schedule.timezone) {
                Ok(times) => {
                    let kept = kept(&schedule.name).filter(|(known, _)| *known == spec(schedule));
                    let next_ms = kept.map_or_else(|| times.after(now_ms), |(_, next)| Some(next));
                    planned.push(Planned {
                        schedule: schedule.clone(),
                        times,
                        next_ms,
                    });
                }
                Err(reason) => complaints.push(format!("schedule {}: {reason}", schedule.name)),
            }
        }
        (Schedules { planned }, complaints)
    }

    /// When the first is due.
    pub fn next_deadline(&self) -> Option<i64> {
        self.planned.iter().filter_map(|planned| planned.next_ms).min()
    }

    /// Each of them.
    pub fn all(&self) -> &[Planned] {
        &self.planned
    }

    /// The one of this name.
    pub fn find(&self, name: &str) -> Option<&Planned> {
        self.planned.iter().find(|planned| planned.schedule.name == name)
    }

    /// Takes what is due.
    pub fn take_due(&mut self, now_ms: i64) -> Vec<Fire> {
        let mut fires = Vec::new();
        for planned in &mut self.planned {
            let Some(first) = planned.next_ms.filter(|next| *next <= now_ms) else {
                continue;
            };
            let mut times = vec![first];
            let mut next = planned.times.after(first);
            for _ in 0..MOST_LOOKS {
                let Some(time) = next.filter(|time| *time <= now_ms) else {
                    break;
                };
                times.push(time);
                next = planned.times.after(time);
            }
            // Further back than a year nothing is made up for.
            let next = next
                .filter(|time| *time > now_ms)
                .or_else(|| planned.times.after(now_ms));
            planned.next_ms = next;
            fires.push(Fire {
                name: planned.schedule.name.clone(),
                times: wanted(planned.schedule.missed, times, now_ms),
                next_ms: next,
            });
        }
        fires
    }
}

/// Of the times that have come those for which a job is pushed.
fn wanted(missed: Missed, mut times: Vec<i64>, now_ms: i64) -> Vec<i64> {
    let last = times.last().copied();
    match missed {
        Missed::Skip => last.into_iter().filter(|time| now_ms - time <= LATE_MS).collect(),
        Missed::Once => last.into_iter().collect(),
        Missed::All => times.split_off(times.len().saturating_sub(MOST_MISSED)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_config::Overlap;

    const MINUTE: i64 = 60_000;
    const DAY: i64 = 24 * 60 * MINUTE;

    fn schedule(missed: Missed) -> Schedule {
        Schedule {
            name: "nightly".into(),
            queue: "mail".into(),
            kind: "digest".into(),
            cron: "30 2 * * *".into(),
            timezone: "UTC".into(),
            missed,
            overlap: Overlap::Skip,
            payload: String::new(),
        }
    }

    fn due_at(missed: Missed, now: i64) -> Vec<Fire> {
        let kept = |_: &str| Some(("30 2 * * * UTC".to_owned(), 150 * MINUTE));
        let (mut schedules, complaints) = Schedules::new(&[schedule(missed)], kept, now);
        assert!(complaints.is_empty());
        schedules.take_due(now)
    }

    #[test]
    fn one_that_is_due_is_pushed_once_whatever_its_policy() {
        for missed in [Missed::Skip, Missed::Once, Missed::All] {
            let fires = due_at(missed, 150 * MINUTE + 900);
            assert_eq!(fires.len(), 1);
            assert_eq!(fires[0].times, [150 * MINUTE], "{missed:?}");
            assert_eq!(fires[0].next_ms, Some(150 * MINUTE + DAY));
        }
        assert!(due_at(Missed::Once, 150 * MINUTE - 1).is_empty());
    }

    #[test]
    fn missed_times_are_made_up_for_as_the_policy_says() {
        let now = 10 * DAY;
        let times = |missed| due_at(missed, now)[0].times.clone();
        assert!(times(Missed::Skip).is_empty());
        assert_eq!(times(Missed::Once), [150 * MINUTE + 9 * DAY]);
        assert_eq!(times(Missed::All).len(), 10);
        let many = due_at(Missed::All, 300 * DAY);
        assert_eq!(many[0].times.len(), MOST_MISSED);
        assert_eq!(many[0].next_ms, Some(150 * MINUTE + 300 * DAY));
    }

    #[test]
    fn a_changed_expression_begins_anew() {
        let kept = |_: &str| Some(("0 1 * * * UTC".to_owned(), 5));
        let (mut schedules, _) = Schedules::new(&[schedule(Missed::All)], kept, 10 * DAY);
        assert!(schedules.take_due(10 * DAY).is_empty());
        assert_eq!(schedules.next_deadline(), Some(150 * MINUTE + 10 * DAY));
    }
}
