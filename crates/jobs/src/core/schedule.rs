use forkyard_config::cron::Times;
use forkyard_config::{Missed, Schedule};
use forkyard_protocol::jobs::{NewJob, ScheduleView};

/// A time is missed if the daemon or machine slept past it for longer than this. Smaller steps of the clock change
/// nothing.
pub const LATE_MS: i64 = 60_000;
const MOST_MISSED: usize = 100;
const MOST_LOOKS: usize = 600_000;

#[derive(Debug, Clone)]
pub struct Planned {
    pub schedule: Schedule,
    times: Times,
    /// Milliseconds since 1970; `None`: never.
    pub next_ms: Option<i64>,
    /// The next time before the clock was set back. Everything before it was done, should the clock be set forward
    /// again.
    former_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub name: String,
    pub spec: String,
    /// The next time; `None`: it was stored by a clock that was set back since.
    pub next_ms: Option<i64>,
    /// The next time by such a clock.
    pub former_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fire {
    pub name: String,
    /// The times that get a job, oldest first; empty if they were missed.
    pub times: Vec<i64>,
    pub next_ms: Option<i64>,
}

#[derive(Debug, Clone, Default)]
pub struct Schedules {
    planned: Vec<Planned>,
    /// Both clocks at the last look.
    seen_ms: Option<(i64, u64)>,
}

pub fn spec(schedule: &Schedule) -> String {
    format!("{} {}", schedule.cron, schedule.timezone)
}

impl Schedules {
    /// Schedules from a configuration and the stored state.
    ///
    /// Also returns complaints about expressions that are no longer valid, because their time zone is gone.
    pub fn new(schedules: &[Schedule], kept: &[Kept], now_ms: i64) -> (Schedules, Vec<String>) {
        let (mut planned, mut complaints) = (Vec::new(), Vec::new());
        for schedule in schedules {
            match Times::new(&schedule.cron, &schedule.timezone) {
                Ok(times) => {
                    let is_same = |kept: &&Kept| kept.name == schedule.name && kept.spec == spec(schedule);
                    let kept = kept.iter().find(is_same);
                    let next_ms = kept.and_then(|kept| kept.next_ms);
                    planned.push(Planned {
                        schedule: schedule.clone(),
                        next_ms: next_ms.or_else(|| times.after(now_ms)),
                        former_ms: kept.and_then(|kept| kept.former_ms),
                        times,
                    });
                }
                Err(reason) => complaints.push(format!("schedule {}: {reason}", schedule.name)),
            }
        }
        let seen_ms = None;
        (Schedules { planned, seen_ms }, complaints)
    }

    pub fn next_deadline(&self) -> Option<i64> {
        self.planned.iter().filter_map(|planned| planned.next_ms).min()
    }

    pub fn kept(&self) -> Vec<Kept> {
        let kept = |planned: &Planned| Kept {
            name: planned.schedule.name.clone(),
            spec: spec(&planned.schedule),
            next_ms: planned.next_ms,
            former_ms: planned.former_ms,
        };
        self.planned.iter().map(kept).collect()
    }

    pub fn all(&self) -> &[Planned] {
        &self.planned
    }

    pub fn find(&self, name: &str) -> Option<&Planned> {
        self.planned.iter().find(|planned| planned.schedule.name == name)
    }

    /// Takes the due times. `steady_ms`: the monotonic clock, including sleep.
    pub fn take_due(&mut self, now_ms: i64, steady_ms: u64) -> Vec<Fire> {
        let was_put_forward = self.see_clock(now_ms, steady_ms);
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
            // At most a year is made up for.
            let next = next
                .filter(|time| *time > now_ms)
                .or_else(|| planned.times.after(now_ms));
            planned.next_ms = next;
            let missed = match was_put_forward {
                true => Missed::Once,
                false => planned.schedule.missed,
            };
            fires.push(Fire {
                name: planned.schedule.name.clone(),
                times: wanted(missed, times, now_ms),
                next_ms: next,
            });
        }
        fires
    }

    /// Checks whether the wall clock was set since the last look; returns whether it went forward.
    fn see_clock(&mut self, now_ms: i64, steady_ms: u64) -> bool {
        let Some((wall_ms, before_ms)) = self.seen_ms.replace((now_ms, steady_ms)) else {
            return false;
        };
        let passed_ms = i64::try_from(steady_ms.saturating_sub(before_ms)).unwrap_or(i64::MAX);
        // The present clock's reading at the last look.
        let then_ms = now_ms.saturating_sub(passed_ms);
        if (then_ms - wall_ms).abs() > LATE_MS {
            self.planned.iter_mut().for_each(|it| it.replan(wall_ms, then_ms));
        }
        for planned in &mut self.planned {
            planned.former_ms.take_if(|former| *former <= now_ms);
        }
        then_ms - wall_ms > LATE_MS
    }
}

impl Planned {
    /// The job that it pushes.
    pub fn job(&self) -> NewJob {
        NewJob {
            queue: self.schedule.queue.clone(),
            kind: self.schedule.kind.clone(),
            payload: self.schedule.payload.clone().into_bytes(),
            ..NewJob::default()
        }
    }

    pub fn view(&self) -> ScheduleView {
        ScheduleView {
            name: self.schedule.name.clone(),
            queue: self.schedule.queue.clone(),
            kind: self.schedule.kind.clone(),
            cron: self.schedule.cron.clone(),
            timezone: self.schedule.timezone.clone(),
            next_ms: self.next_ms,
        }
    }

    /// Replans after the clock was set.
    fn replan(&mut self, from_ms: i64, to_ms: i64) {
        let anew = self.times.after(to_ms);
        // No correct clock delays it further.
        let is_fit = |time: &i64| anew.is_none_or(|anew| *time <= anew);
        if to_ms < from_ms {
            if let Some(next) = self.next_ms.filter(|next| !is_fit(next)) {
                self.former_ms = self.former_ms.max(Some(next));
                self.next_ms = anew;
            }
        } else if let Some(former) = self.former_ms.take_if(|former| is_fit(former)) {
            self.next_ms = Some(former);
        }
    }
}

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

    fn kept(next_ms: i64) -> Kept {
        Kept {
            name: "nightly".into(),
            spec: "30 2 * * * UTC".into(),
            next_ms: Some(next_ms),
            former_ms: None,
        }
    }

    fn due_at(missed: Missed, now: i64) -> Vec<Fire> {
        let (mut schedules, complaints) = Schedules::new(&[schedule(missed)], &[kept(150 * MINUTE)], now);
        assert!(complaints.is_empty());
        schedules.take_due(now, 0)
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
        let kept = Kept {
            spec: "0 1 * * * UTC".into(),
            ..kept(5)
        };
        let (mut schedules, _) = Schedules::new(&[schedule(Missed::All)], &[kept], 10 * DAY);
        assert!(schedules.take_due(10 * DAY, 0).is_empty());
        assert_eq!(schedules.next_deadline(), Some(150 * MINUTE + 10 * DAY));
    }

    /// The times at which a schedule of every fifth minute runs, with these clocks.
    fn runs_of(missed: Missed, begun: i64, clocks: &[(i64, u64)]) -> Vec<Vec<i64>> {
        let every_fifth = Schedule {
            cron: "*/5 * * * *".into(),
            ..schedule(missed)
        };
        let (mut schedules, _) = Schedules::new(&[every_fifth], &[], begun);
        let mut look = |(wall, steady): &(i64, u64)| -> Vec<i64> {
            let fires = schedules.take_due(*wall, *steady);
            fires.into_iter().flat_map(|fire| fire.times).collect()
        };
        clocks.iter().map(&mut look).collect()
    }

    #[test]
    fn a_clock_that_is_put_forward_runs_a_schedule_once_and_one_that_is_put_back_does_not_silence_it() {
        const MIN: u64 = MINUTE as u64;
        let noon = 720 * MINUTE;
        for missed in [Missed::Skip, Missed::Once, Missed::All] {
            let clocks = [
                (noon + 4 * MINUTE, 0),
                (noon + 5 * MINUTE, MIN),
                // Three weeks forward and back, with a late look: the clock showed 12:10 in between.
                (noon + 20 * DAY + 7 * MINUTE, MIN + 1),
                (noon + 10 * MINUTE + 30_000, MIN + 60_001),
                (noon + 15 * MINUTE, 6 * MIN),
            ];
            let runs = runs_of(missed, noon, &clocks);
            let at = |minutes: i64| vec![noon + minutes * MINUTE];
            let weeks = vec![noon + 20 * DAY + 5 * MINUTE];
            assert_eq!(runs, [vec![], at(5), weeks, at(10), at(15)], "{missed:?}");
        }
    }

    #[test]
    fn what_ran_before_the_clock_was_put_back_for_a_while_does_not_run_again() {
        let noon = 10 * DAY + 720 * MINUTE;
        // A machine that boots in 1970 and then learns the time.
        let clocks = [
            (noon + MINUTE, 0),
            (MINUTE, 1),
            (noon + 2 * MINUTE, 2),
            (noon + 5 * MINUTE, 180_002),
        ];
        let runs = runs_of(Missed::Once, noon, &clocks);
        assert_eq!(runs, [vec![], vec![], vec![], vec![noon + 5 * MINUTE]]);
        // The stored state after the same.
        let former_ms = Some(noon + 150 * MINUTE);
        let kept = Kept {
            next_ms: None,
            former_ms,
            ..kept(0)
        };
        let (mut schedules, _) = Schedules::new(&[schedule(Missed::Once)], &[kept], MINUTE);
        assert_eq!(schedules.take_due(MINUTE, 0), []);
        assert_eq!(schedules.next_deadline(), Some(150 * MINUTE));
        assert_eq!(schedules.take_due(noon + 60 * MINUTE, 1), []);
        assert_eq!(schedules.next_deadline(), former_ms);
    }

    #[test]
    fn a_clock_that_is_set_by_a_moment_runs_nothing_twice() {
        let clocks = [(5 * MINUTE, 0), (5 * MINUTE - 30_000, 1), (5 * MINUTE, 30_001)];
        let runs = runs_of(Missed::Once, MINUTE, &clocks);
        assert_eq!(runs, [vec![5 * MINUTE], vec![], vec![]]);
    }
}
