//! Single rules of the scheduler.

use super::*;

pub(super) const LIMITS: Limits = Limits {
    failures: 3,
    crashes: 2,
    first_ms: 1_000,
    factor: 2,
    most_ms: 10_000,
    jitter_percent: 0,
};

pub(super) fn queue(name: &str, pool: &str) -> QueueSettings {
    QueueSettings {
        name: name.into(),
        pool: pool.into(),
        weight: 1,
        max_running: 1_000,
        reserve: true,
        timeout_ms: 60_000,
        limits: LIMITS,
        rate: None,
    }
}

pub(super) fn pool(name: &str, workers: u32) -> PoolSettings {
    PoolSettings {
        name: name.into(),
        workers,
    }
}

fn at(ms: u64) -> Moment {
    Moment {
        wall_ms: ms as i64,
        mono_ms: ms,
    }
}

fn told(scheduler: &mut Scheduler, event: Event, ms: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    scheduler.handle(event, at(ms), &mut actions);
    scheduler.invariants();
    actions
}

fn waiting(queue: &str, tenant: &str, change: i64) -> Event {
    Event::Waiting(GroupName::new(queue, tenant), change)
}

fn claim(queue: &str, tenant: &str) -> Action {
    Action::Claim(GroupName::new(queue, tenant))
}

pub(super) fn start(id: JobId) -> Start {
    Start {
        id,
        attempt: 1,
        counters: Counters::default(),
        most_failures: None,
        timeout_ms: None,
        expires_ms: None,
        steps: 0,
        step: 0,
        worst: TaskStatus::NotApplicable,
    }
}

fn claimed(queue: &str, tenant: &str, job: Option<Start>) -> Event {
    Event::Claimed(GroupName::new(queue, tenant), job)
}

fn answered(id: JobId, answer: Answer) -> Event {
    Event::Answered {
        id,
        attempt: 1,
        answer,
    }
}

fn one_queue(workers: u32, change: impl FnOnce(&mut QueueSettings)) -> Scheduler {
    let mut scheduler = Scheduler::default();
    let mut settings = queue("q", "p");
    change(&mut settings);
    let nothing = told(
        &mut scheduler,
        Event::Configured(vec![pool("p", workers)], vec![settings]),
        0,
    );
    assert_eq!(nothing, []);
    scheduler
}

/// A scheduler with job 1 running.
fn busy(change: impl FnOnce(&mut Start)) -> Scheduler {
    let mut scheduler = one_queue(1, |_| {});
    assert_eq!(told(&mut scheduler, waiting("q", "", 1), 0), [claim("q", "")]);
    let mut job = start(1);
    change(&mut job);
    let step = job.step;
    assert_eq!(
        told(&mut scheduler, claimed("q", "", Some(job)), 0),
        [Action::Send { id: 1, step }]
    );
    scheduler
}

fn end(actions: &[Action]) -> (Becomes, Outcome) {
    match actions
        .iter()
        .find(|action| matches!(action, Action::Finish { .. }))
    {
        Some(Action::Finish { verdict, .. }) => (verdict.becomes, verdict.outcome),
        _ => panic!("{actions:?}"),
    }
}

#[test]
fn a_tenth_is_left_to_groups_with_nothing_running() {
    let mut scheduler = one_queue(20, |_| {});
    let actions = told(&mut scheduler, waiting("q", "flood", 100), 0);
    assert_eq!(actions.len(), 18);
    assert_eq!(
        told(&mut scheduler, waiting("q", "small", 1), 0),
        [claim("q", "small")]
    );
    assert_eq!(told(&mut scheduler, waiting("q", "small", 1), 0), []);
    assert_eq!(
        told(&mut scheduler, waiting("q", "other", 1), 0),
        [claim("q", "other")]
    );
    let mut alone = one_queue(20, |settings| settings.reserve = false);
    assert_eq!(told(&mut alone, waiting("q", "flood", 100), 0).len(), 20);
}

#[test]
fn weights_share_what_is_free() {
    let mut scheduler = Scheduler::default();
    let heavy = QueueSettings {
        weight: 3,
        reserve: false,
        ..queue("heavy", "p")
    };
    let light = QueueSettings {
        reserve: false,
        ..queue("light", "p")
    };
    let mut actions = told(&mut scheduler, waiting("heavy", "", 100), 0);
    actions.extend(told(&mut scheduler, waiting("light", "", 100), 0));
    assert_eq!(actions, []);
    let actions = told(
        &mut scheduler,
        Event::Configured(vec![pool("p", 8)], vec![heavy, light]),
        0,
    );
    let of = |name: &str| {
        actions
            .iter()
            .filter(|action| **action == claim(name, ""))
            .count()
    };
    assert_eq!((of("heavy"), of("light")), (6, 2));
}

#[test]
fn limits_rates_and_pauses_hold() {
    let mut limited = one_queue(20, |settings| settings.max_running = 2);
    assert_eq!(told(&mut limited, waiting("q", "", 9), 0).len(), 2);
    let mut rated = one_queue(20, |settings| settings.rate = Some((2, 1_000)));
    assert_eq!(told(&mut rated, waiting("q", "", 9), 0).len(), 2);
    assert_eq!(rated.next_deadline().1, Some(500));
    assert_eq!(told(&mut rated, Event::Time, 500).len(), 1);
    let mut paused = one_queue(20, |_| {});
    let pause = |is_paused| Event::Paused {
        queue: "q".into(),
        is_paused,
    };
    told(&mut paused, pause(true), 0);
    assert_eq!(told(&mut paused, waiting("q", "", 1), 0), []);
    assert_eq!(told(&mut paused, pause(false), 0), [claim("q", "")]);
}

#[test]
fn a_claim_that_brought_nothing_frees_its_worker() {
    let mut scheduler = one_queue(1, |_| {});
    told(&mut scheduler, waiting("q", "", 1), 0);
    // It was cancelled before the claim, and reported after it.
    assert_eq!(told(&mut scheduler, waiting("q", "", -1), 0), []);
    assert_eq!(told(&mut scheduler, claimed("q", "", None), 0), []);
    assert_eq!(told(&mut scheduler, waiting("q", "", 1), 0), [claim("q", "")]);
}

#[test]
fn a_job_whose_time_is_over_is_ended_and_counts_as_a_failure() {
    let mut scheduler = busy(|_| {});
    assert_eq!(scheduler.next_deadline().1, Some(60_000));
    let abort = Action::Abort {
        id: 1,
        why: Why::TimedOut,
    };
    assert_eq!(told(&mut scheduler, Event::Time, 60_000), [abort]);
    assert_eq!(told(&mut scheduler, Event::Time, 90_000), []);
    let actions = told(&mut scheduler, answered(1, Answer::Crashed), 90_000);
    assert_eq!(end(&actions), (Becomes::Again(91_000), Outcome::TimedOut));
}

#[test]
fn a_cancelled_job_ends_cancelled_unless_it_was_done_already() {
    for (answer, outcome) in [
        (Answer::Crashed, Outcome::Cancelled),
        (Answer::Failed, Outcome::Cancelled),
        (Answer::Ok(TaskStatus::Ok), Outcome::Done),
    ] {
        let mut scheduler = busy(|_| {});
        let abort = Action::Abort {
            id: 1,
            why: Why::Cancelled,
        };
        assert_eq!(told(&mut scheduler, Event::Cancel(1), 5), [abort]);
        assert_eq!(told(&mut scheduler, Event::Cancel(1), 6), []);
        assert_eq!(end(&told(&mut scheduler, answered(1, answer), 7)).1, outcome);
        assert!(scheduler.is_idle());
    }
}

#[test]
fn steps_come_one_after_the_other_and_stop_at_an_error() {
    let done = |step, status| Action::StepDone {
        id: 1,
        attempt: 1,
        step,
        status,
    };
    let mut scheduler = busy(|job| job.steps = 3);
    assert_eq!(
        told(&mut scheduler, answered(1, Answer::Ok(TaskStatus::Warning)), 1),
        [done(0, TaskStatus::Warning), Action::Send { id: 1, step: 1 }]
    );
    let actions = told(&mut scheduler, answered(1, Answer::Ok(TaskStatus::Error)), 2);
    assert_eq!(actions[0], done(1, TaskStatus::Error));
    assert_eq!(end(&actions), (Becomes::Done(TaskStatus::Error), Outcome::Done));
    // A retry begins with the failed step.
    let mut again = busy(|job| (job.steps, job.step) = (3, 2));
    let actions = told(&mut again, answered(1, Answer::Failed), 3);
    assert_eq!(actions[0], done(2, TaskStatus::TaskError));
    assert_eq!(end(&actions), (Becomes::Again(1_003), Outcome::Failed));
}

#[test]
fn a_pool_that_can_not_be_reached_is_left_alone_for_longer_and_longer() {
    let mut scheduler = one_queue(1, |_| {});
    let (mut now, mut rests) = (0, Vec::new());
    told(&mut scheduler, waiting("q", "", 1), now);
    for _ in 0..8 {
        told(&mut scheduler, claimed("q", "", Some(start(1))), now);
        let actions = told(&mut scheduler, answered(1, Answer::Unreached), now);
        assert_eq!(end(&actions), (Becomes::Again(now as i64), Outcome::Returned));
        assert_eq!(told(&mut scheduler, waiting("q", "", 1), now), []);
        let until = scheduler.next_deadline().1.expect("a rest ends");
        rests.push(until - now);
        now = until;
        assert_eq!(told(&mut scheduler, Event::Time, now), [claim("q", "")]);
    }
    assert_eq!(rests, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
}

#[test]
fn what_is_due_is_let_in_once() {
    let mut scheduler = one_queue(1, |_| {});
    assert_eq!(told(&mut scheduler, Event::Due(Some(500)), 0), []);
    assert_eq!(scheduler.next_deadline().0, Some(500));
    assert_eq!(told(&mut scheduler, Event::Time, 500), [Action::Promote]);
    assert_eq!(told(&mut scheduler, Event::Time, 501), []);
    assert_eq!(scheduler.next_deadline().0, None);
    assert_eq!(told(&mut scheduler, Event::Due(Some(900)), 502), []);
    assert_eq!(told(&mut scheduler, Event::Time, 900), [Action::Promote]);
}

#[test]
fn nothing_starts_while_the_store_fails_or_the_process_leaves() {
    let mut scheduler = one_queue(1, |_| {});
    told(&mut scheduler, Event::StoreFailed, 0);
    assert_eq!(told(&mut scheduler, waiting("q", "", 1), 0), []);
    assert_eq!(told(&mut scheduler, Event::StoreWell, 0), [claim("q", "")]);
    told(&mut scheduler, Event::Drain, 0);
    assert_eq!(
        told(&mut scheduler, claimed("q", "", Some(start(1))), 0),
        [Action::Send { id: 1, step: 0 }]
    );
    told(&mut scheduler, waiting("q", "", 1), 0);
    let actions = told(&mut scheduler, answered(1, Answer::Ok(TaskStatus::Ok)), 0);
    assert_eq!((end(&actions).1, actions.len()), (Outcome::Done, 1));
}

#[test]
fn a_queue_that_moves_takes_its_jobs_along() {
    let mut scheduler = busy(|_| {});
    told(&mut scheduler, waiting("q", "", 5), 0);
    let moved = Event::Configured(vec![pool("p", 1), pool("other", 2)], vec![queue("q", "other")]);
    assert_eq!(told(&mut scheduler, moved, 0), [claim("q", "")]);
    told(&mut scheduler, Event::Configured(vec![], vec![]), 0);
    let actions = told(&mut scheduler, answered(1, Answer::Failed), 0);
    assert!(matches!(end(&actions).0, Becomes::Again(_)));
}

#[test]
fn an_answer_to_an_earlier_start_changes_nothing() {
    let mut scheduler = busy(|job| job.attempt = 2);
    assert_eq!(
        told(&mut scheduler, answered(1, Answer::Ok(TaskStatus::Ok)), 0),
        []
    );
    assert!(!scheduler.is_idle());
}
