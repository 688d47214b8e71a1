//! A running job, from its claim to its end.

use super::event::{Action, Answer, End, GroupName, JobId, Moment, Start, TaskStatus, Why};
use super::{REST_MS, Scheduler, verdict};

#[derive(Debug)]
pub(super) struct RunningJob {
    group: GroupName,
    start: Start,
    timeout_ms: u64,
    /// The deadline; `None` after it has passed.
    deadline_ms: Option<u64>,
    aborted: Option<Why>,
}

impl RunningJob {
    pub(super) fn deadline(&self) -> Option<u64> {
        self.deadline_ms
    }
}

impl Scheduler {
    pub(super) fn claimed(
        &mut self,
        group: GroupName,
        job: Option<Start>,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        let Some(start) = job else {
            self.group(&group, |group| group.waiting += 1);
            return self.count(&group, -1);
        };
        let settings = self.queue(&group.queue).settings.as_ref();
        let timeout_ms = start.timeout_ms.or(settings.map(|settings| settings.timeout_ms));
        let is_late = start.expires_ms.is_some_and(|expires| expires <= now.wall_ms);
        let is_over = start.steps > 0 && start.step >= start.steps;
        let is_gone = settings.is_none();
        let (id, worst) = (start.id, start.worst);
        let running = RunningJob {
            group,
            timeout_ms: timeout_ms.unwrap_or(0),
            deadline_ms: None,
            aborted: None,
            start,
        };
        self.running.insert(id, running);
        match (is_late, is_gone, is_over) {
            (true, ..) => self.finish(id, End::Expired, now, actions),
            // The configuration has changed since the claim.
            (_, true, _) => self.finish(id, End::Returned, now, actions),
            // Its last step was done when its process died.
            (.., true) => self.finish(id, End::Done(worst), now, actions),
            _ => self.send(id, now, actions),
        }
    }

    fn send(&mut self, id: JobId, now: Moment, actions: &mut Vec<Action>) {
        if let Some(running) = self.running.get_mut(&id) {
            running.deadline_ms = Some(now.mono_ms.saturating_add(running.timeout_ms));
            actions.push(Action::Send {
                id,
                step: running.start.step,
            });
        }
    }

    pub(super) fn answered(
        &mut self,
        id: JobId,
        attempt: u32,
        answer: Answer,
        now: Moment,
        actions: &mut Vec<Action>,
    ) {
        if self
            .running
            .get(&id)
            .is_none_or(|running| running.start.attempt != attempt)
        {
            return;
        }
        self.note_reach(id, answer, now);
        let Some(running) = self.running.get_mut(&id) else {
            return;
        };
        let end = match (answer, running.aborted) {
            (Answer::Ok(status), _) if running.start.steps > 0 => {
                let step = running.start.step;
                running.start.worst = running.start.worst.max(status);
                running.start.step += 1;
                let (is_last, worst, aborted) = (
                    running.start.step == running.start.steps,
                    running.start.worst,
                    running.aborted,
                );
                actions.push(Action::StepDone {
                    id,
                    attempt,
                    step,
                    status,
                });
                match aborted {
                    _ if is_last || status == TaskStatus::Error => End::Done(worst),
                    Some(why) => end_of(why),
                    None => return self.send(id, now, actions),
                }
            }
            (Answer::Ok(status), _) => End::Done(status),
            (Answer::Discard, _) => End::Discarded,
            (Answer::Dead, _) => End::Dead,
            (Answer::Snooze(millis), None) => End::Snoozed(millis),
            (Answer::Unreached, None) => End::Returned,
            (Answer::Stopped, None) => End::Stopped,
            (Answer::Failed, None) => End::Failed,
            (Answer::Crashed, None) => End::Crashed,
            (
                Answer::Snooze(_) | Answer::Unreached | Answer::Stopped | Answer::Failed | Answer::Crashed,
                Some(why),
            ) => end_of(why),
        };
        let failed_step = matches!(end, End::Failed | End::Dead | End::Crashed | End::TimedOut);
        if let Some(running) = self
            .running
            .get(&id)
            .filter(|it| failed_step && it.start.steps > 0)
        {
            actions.push(Action::StepDone {
                id,
                attempt,
                step: running.start.step,
                status: TaskStatus::TaskError,
            });
        }
        self.finish(id, end, now, actions);
    }

    fn note_reach(&mut self, id: JobId, answer: Answer, now: Moment) {
        let queue = self.running.get(&id).map(|running| running.group.queue.as_str());
        let queue = queue.and_then(|queue| self.queues.get(queue));
        let settings = queue.and_then(|queue| queue.settings.as_ref());
        let Some(pool) = settings.and_then(|settings| self.pools.get_mut(&settings.pool)) else {
            return;
        };
        match answer {
            Answer::Unreached if pool.rests_until.is_none() => {
                pool.rest_ms = (pool.rest_ms * 2).clamp(REST_MS.0, REST_MS.1);
                pool.rests_until = Some(now.mono_ms.saturating_add(pool.rest_ms));
            }
            Answer::Unreached => {}
            _ => pool.rest_ms = 0,
        }
    }

    pub(super) fn abort(&mut self, id: JobId, why: Why, actions: &mut Vec<Action>) {
        let Some(running) = self.running.get_mut(&id) else {
            return;
        };
        if why == Why::TimedOut {
            running.deadline_ms = None;
        }
        if running.aborted.is_none() {
            running.aborted = Some(why);
            actions.push(Action::Abort { id, why });
        }
    }

    fn finish(&mut self, id: JobId, end: End, now: Moment, actions: &mut Vec<Action>) {
        let Some(running) = self.running.remove(&id) else {
            return;
        };
        let limits = self
            .queue(&running.group.queue)
            .settings
            .as_ref()
            .map(|settings| settings.limits);
        let verdict = verdict(&running.start, &limits.unwrap_or(UNKNOWN), end, now.wall_ms);
        actions.push(Action::Finish {
            id,
            attempt: running.start.attempt,
            verdict,
        });
        self.count(&running.group, -1);
    }
}

/// The limits of running jobs whose queue was removed from the configuration: they are kept until it is back.
const UNKNOWN: super::Limits = super::Limits {
    first_ms: 60_000,
    factor: 2,
    most_ms: 3_600_000,
    ..super::Limits::NONE
};

fn end_of(why: Why) -> End {
    match why {
        Why::TimedOut => End::TimedOut,
        Why::Cancelled => End::Cancelled,
    }
}
