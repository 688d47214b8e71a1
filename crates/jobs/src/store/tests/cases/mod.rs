//! Tests of the store on every database: each has a test module that includes this file, with a `TestDatabase`.

use super::{
    Becomes, By, Change, Changes, Claimed, Counters, Filter, Finished, Fired, GroupName, JobView, Kept,
    NewJob, Operation, Outcome, Output, Reply, Selection, SequenceChange, Start, State, StepDone, Store,
    TaskStatus, TestDatabase, Verdict,
};
use std::cell::RefCell;

mod later;
mod sequences;

struct Bench {
    store: RefCell<Store>,
    database: TestDatabase,
    now: i64,
}

fn bench() -> Bench {
    let database = TestDatabase::new();
    Bench {
        store: RefCell::new(database.open("me")),
        database,
        now: 1_000_000,
    }
}

fn job(tenant: &str) -> NewJob {
    NewJob {
        queue: "q".into(),
        kind: "k".into(),
        tenant: tenant.into(),
        payload: b"{\"a\":1}".to_vec(),
        ..NewJob::default()
    }
}

fn group(tenant: &str) -> GroupName {
    GroupName::new("q", tenant)
}

impl Bench {
    fn all(&self, operations: Vec<Operation>) -> (Vec<Reply>, Changes, Option<Option<i64>>) {
        let done = self
            .store
            .borrow_mut()
            .perform(&operations, self.now)
            .expect("a commit");
        (done.replies, done.changes, done.due)
    }

    fn one(&self, operation: Operation) -> Reply {
        self.all(vec![operation]).0.remove(0)
    }

    fn push(&self, job: NewJob) -> i64 {
        match self.one(Operation::Push(vec![job])) {
            Reply::Pushed(pushed) => pushed[0].id,
            other => panic!("{other:?}"),
        }
    }

    fn claim(&self, tenant: &str) -> Option<Claimed> {
        let claim = Operation::Claim(GroupName::new("q", tenant));
        match self.one(claim) {
            Reply::Claimed(_, job) => job.map(|job| *job),
            other => panic!("{other:?}"),
        }
    }

    fn finish(&self, job: &Claimed, becomes: Becomes) -> Changes {
        self.all(vec![finished(job, becomes)]).1
    }

    fn show(&self, id: i64) -> JobView {
        match self.one(Operation::Show(id)) {
            Reply::Show(Some(view)) => *view,
            other => panic!("{other:?}"),
        }
    }

    fn state(&self, id: i64) -> String {
        self.show(id).state
    }
}

pub(super) fn clean(before_ms: i64, failed_before_ms: i64) -> Operation {
    Operation::Clean {
        before_ms,
        failed_before_ms,
    }
}

pub(super) fn finished(job: &Claimed, becomes: Becomes) -> Operation {
    Operation::Finish(Box::new(Finished {
        id: job.start.id,
        attempt: job.start.attempt,
        verdict: Verdict {
            becomes,
            counters: Counters::default(),
            outcome: Outcome::Done,
        },
        output: Output {
            result: b"done".to_vec(),
            ..Output::default()
        },
        duration_ms: 5,
    }))
}

#[test]
fn a_job_goes_from_its_push_to_its_end() {
    let bench = bench();
    let id = bench.push(job("t"));
    assert_eq!(
        bench.store.borrow_mut().waiting().expect("counts")[&group("t")],
        1
    );
    let claimed = bench.claim("t").expect("a job");
    assert_eq!((claimed.start.id, claimed.start.attempt), (id, 1));
    assert_eq!(claimed.payload, b"{\"a\":1}");
    assert_eq!(bench.claim("t"), None);
    assert_eq!(bench.state(id), "running");
    bench.finish(&claimed, Becomes::Done(TaskStatus::Ok));
    let view = bench.show(id);
    assert_eq!(
        (view.state.as_str(), view.status.as_deref()),
        ("done", Some("ok"))
    );
    assert_eq!(view.result.as_deref(), Some("done"));
}

#[test]
fn starts_are_counted_and_only_the_last_may_end() {
    let bench = bench();
    let id = bench.push(job(""));
    let first = bench.claim("").expect("a job");
    assert_eq!(bench.finish(&first, Becomes::Again(0))[&group("")], 1);
    let second = bench.claim("").expect("again");
    assert_eq!(second.start.attempt, 2);
    bench.finish(&first, Becomes::Failed);
    assert_eq!(bench.state(id), "running");
    bench.finish(&second, Becomes::Failed);
    bench.finish(&second, Becomes::Done(TaskStatus::Ok));
    assert_eq!(bench.state(id), "failed");
}

#[test]
fn the_smallest_priority_comes_first_and_then_the_oldest() {
    let bench = bench();
    let ids: Vec<i64> = [Some(5), None, Some(5), Some(-1)]
        .into_iter()
        .map(|priority| bench.push(NewJob { priority, ..job("") }))
        .collect();
    let order: Vec<i64> = std::iter::from_fn(|| bench.claim(""))
        .map(|job| job.start.id)
        .collect();
    assert_eq!(order, [ids[3], ids[0], ids[2], ids[1]]);
}

#[test]
fn what_waits_for_its_time_is_let_in_when_that_has_come() {
    let mut bench = bench();
    let (_, changes, due) = bench.all(vec![Operation::Push(vec![
        NewJob {
            in_ms: Some(500),
            ..job("")
        },
        NewJob {
            at_ms: Some(1_000_900),
            ..job("")
        },
    ])]);
    assert_eq!((changes.len(), due), (0, Some(Some(1_000_500))));
    bench.now = 1_000_600;
    let (_, changes, due) = bench.all(vec![Operation::Promote]);
    assert_eq!((changes[&group("")], due), (1, Some(Some(1_000_900))));
}

#[test]
fn equal_keys_are_one_job_until_it_has_ended() {
    let bench = bench();
    let keyed = || NewJob {
        key: Some("order/5".into()),
        ..job("")
    };
    let first = bench.push(keyed());
    assert_eq!(bench.push(keyed()), first);
    let claimed = bench.claim("").expect("a job");
    assert_eq!(bench.push(keyed()), first);
    bench.finish(&claimed, Becomes::Failed);
    let second = bench.push(keyed());
    assert_ne!(second, first);
    let retried = bench.one(Operation::Change(Change::Retry, Selection::One(first, None)));
    assert_eq!(
        retried,
        Reply::Changed {
            count: 0,
            running: Vec::new(),
            held: Some(forkyard_protocol::jobs::HeldKeys {
                jobs: 1,
                job: first,
                holder: second,
            }),
            rest: None,
        }
    );
}

#[test]
fn equal_serial_keys_run_one_after_the_other() {
    let bench = bench();
    let serial = |tenant: &str| NewJob {
        serial: Some("account/7".into()),
        ..job(tenant)
    };
    let (first, second, third) = (
        bench.push(serial("a")),
        bench.push(serial("b")),
        bench.push(serial("a")),
    );
    let free = bench.push(job("a"));
    assert_eq!(bench.state(second), "blocked");
    let claimed = bench.claim("a").expect("the first");
    assert_eq!(claimed.start.id, first);
    assert_eq!(bench.claim("b"), None);
    assert_eq!(bench.claim("a").expect("another").start.id, free);
    let changes = bench.finish(&claimed, Becomes::Again(2_000_000));
    assert_eq!(changes[&group("b")], 1);
    bench.one(Operation::Change(Change::Cancel, Selection::One(second, None)));
    assert_eq!(bench.state(second), "cancelled");
    assert_eq!(bench.claim("a").expect("the third").start.id, third);
}

#[test]
fn jobs_are_cancelled_discarded_and_tried_again() {
    let bench = bench();
    let (waits, runs, fails) = (bench.push(job("")), bench.push(job("x")), bench.push(job("y")));
    let running = bench.claim("x").expect("a job");
    let failing = bench.claim("y").expect("a job");
    bench.finish(&failing, Becomes::Failed);
    let (replies, changes, _) = bench.all(vec![
        Operation::Change(Change::Cancel, Selection::One(waits, Some(vec!["other".into()]))),
        Operation::Change(Change::Cancel, Selection::One(waits, Some(vec!["q".into()]))),
        Operation::Change(Change::Cancel, Selection::One(runs, None)),
    ]);
    let changed = |count, running| Reply::Changed {
        count,
        running,
        held: None,
        rest: None,
    };
    assert_eq!(
        replies,
        [changed(0, vec![]), changed(1, vec![]), changed(0, vec![runs])]
    );
    assert_eq!(changes[&group("")], -1);
    let own = Filter {
        queues: Some(vec!["q".into()]),
        state: Some(State::Failed),
        ..Filter::default()
    };
    let (replies, changes, _) = bench.all(vec![Operation::Change(Change::Retry, Selection::All(own))]);
    assert_eq!((replies, changes[&group("y")]), (vec![changed(1, vec![])], 1));
    assert_eq!(bench.claim("y").expect("again").start.attempt, 2);
    assert_eq!(bench.state(fails), "running");
    bench.finish(&running, Becomes::Quarantined);
    bench.one(Operation::Change(
        Change::Discard,
        Selection::All(Filter {
            state: Some(State::Quarantined),
            ..Filter::default()
        }),
    ));
    assert_eq!(bench.state(runs), "discarded");
}

#[test]
fn a_filter_means_jobs_that_are_all_of_what_it_says() {
    let kinds = |queue: &str, tenant: &str, kind: &str| NewJob {
        queue: queue.into(),
        kind: kind.into(),
        in_ms: Some(60_000),
        ..job(tenant)
    };
    let filter = |queues: Option<&[&str]>, tenant: Option<&str>, kind: Option<&str>| Filter {
        queues: queues.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
        state: Some(State::Scheduled),
        tenant: tenant.map(str::to_owned),
        kind: kind.map(str::to_owned),
        limit: 100,
        ..Filter::default()
    };
    for (asked, expected) in [
        (filter(None, None, None), 8),
        (filter(Some(&[]), None, None), 0),
        (filter(Some(&["q"]), None, None), 4),
        (filter(Some(&["q", "r"]), None, None), 8),
        (filter(None, Some("A"), None), 4),
        (filter(None, None, Some("k")), 4),
        (filter(Some(&["q"]), Some("A"), None), 2),
        (filter(Some(&["q"]), None, Some("k")), 2),
        (filter(None, Some("A"), Some("k")), 2),
        (filter(Some(&["r"]), Some("B"), Some("l")), 1),
        (filter(Some(&["r"]), Some("B"), Some("m")), 0),
    ] {
        let bench = bench();
        for queue in ["q", "r"] {
            for tenant in ["A", "B"] {
                for kind in ["k", "l"] {
                    bench.push(kinds(queue, tenant, kind));
                }
            }
        }
        let Reply::List(listed) = bench.one(Operation::List(asked.clone())) else {
            panic!("no list");
        };
        assert_eq!(listed.len(), expected, "{asked:?}");
        let Reply::Count(counted) = bench.one(Operation::Count(asked.clone())) else {
            panic!("no count");
        };
        assert_eq!(counted.values().sum::<u64>(), expected as u64, "{asked:?}");
        let changed = |operation| match bench.one(operation) {
            Reply::Changed { count, .. } => count,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            changed(Operation::Change(Change::Cancel, Selection::All(asked.clone()))),
            expected as u64,
            "{asked:?}"
        );
        let cancelled = Filter {
            state: Some(State::Cancelled),
            ..asked
        };
        assert_eq!(
            changed(Operation::Change(Change::Retry, Selection::All(cancelled))),
            expected as u64
        );
    }
}

#[test]
fn steps_that_are_decided_are_not_done_again() {
    let bench = bench();
    let id = bench.push(NewJob {
        steps: vec!["fetch".into(), "check".into(), "tell".into()],
        ..job("")
    });
    let first = bench.claim("").expect("a job");
    let step = |attempt, step, name: &str, status| {
        Operation::StepDone(StepDone {
            id,
            attempt,
            step,
            name: name.into(),
            status,
            output: b"seen".to_vec(),
            output_cut: 7,
            duration_ms: 3,
        })
    };
    bench.one(step(1, 0, "fetch", TaskStatus::NotApplicable));
    bench.one(step(1, 1, "check", TaskStatus::TaskError));
    bench.finish(&first, Becomes::Again(0));
    let second = bench.claim("").expect("again");
    assert_eq!((second.start.step, second.steps.len()), (1, 3));
    assert_eq!(second.start.worst, TaskStatus::NotApplicable);
    bench.one(step(1, 2, "tell", TaskStatus::Ok));
    let view = bench.show(id);
    let shown: Vec<_> = view
        .steps
        .iter()
        .map(|step| (step.status.as_deref(), step.output.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            (Some("not_applicable"), None),
            (Some("task_error"), Some("seen")),
            (None, None)
        ]
    );
    assert_eq!(view.steps[1].output_cut, Some(7));
    bench.one(step(2, 1, "check", TaskStatus::Warning));
    bench.finish(&second, Becomes::Again(0));
    let third = bench.claim("").expect("again");
    assert_eq!((third.start.step, third.start.worst), (2, TaskStatus::Warning));
    bench.finish(&third, Becomes::Done(TaskStatus::Warning));
    bench.one(Operation::Change(Change::Retry, Selection::One(id, None)));
    let again = bench.claim("").expect("again");
    assert_eq!(
        (again.start.attempt, again.start.step, again.start.worst),
        (4, 0, TaskStatus::NotApplicable)
    );
}

#[test]
fn what_has_ended_can_be_forgotten_at_once_and_what_failed_is_forgotten_after_its_own_time() {
    let mut bench = bench();
    let ended = |bench: &Bench, becomes| {
        let id = bench.push(job(""));
        let claimed = bench.claim("").expect("a job");
        bench.finish(&claimed, becomes);
        id
    };
    let is_there = |bench: &Bench, id| bench.one(Operation::Show(id)) != Reply::Show(None);
    let done = ended(&bench, Becomes::Done(TaskStatus::Ok));
    let failed = [Becomes::Failed, Becomes::Quarantined].map(|becomes| ended(&bench, becomes));
    let waits = bench.push(job("w"));
    let changed = |reply| match reply {
        Reply::Changed { count, .. } => count,
        other => panic!("{other:?}"),
    };
    let other = Selection::One(done, Some(vec!["other".into()]));
    assert_eq!(changed(bench.one(Operation::Change(Change::Purge, other))), 0);
    assert_eq!(
        changed(bench.one(Operation::Change(Change::Purge, Selection::One(waits, None)))),
        0
    );
    assert_eq!(
        changed(bench.one(Operation::Change(Change::Purge, Selection::One(done, None)))),
        1
    );
    assert!(is_there(&bench, waits) && !is_there(&bench, done));
    bench.now += 1;
    bench.one(clean(bench.now, 1_000_000));
    assert!(
        failed.iter().all(|id| is_there(&bench, *id)),
        "their time is not over"
    );
    bench.one(clean(0, bench.now));
    assert!(failed.iter().all(|id| !is_there(&bench, *id)));
}

#[test]
fn one_bad_operation_hurts_no_other() {
    let bench = bench();
    let claimed = {
        bench.push(job(""));
        bench.claim("").expect("a job")
    };
    bench
        .store
        .borrow_mut()
        .perform(
            &[Operation::Pause {
                queue: "p".into(),
                reason: None,
                is_paused: true,
            }],
            1,
        )
        .expect("a commit");
    bench.database.refuse("bad");
    let bad = NewJob {
        kind: "bad".into(),
        ..job("")
    };
    let (replies, changes, _) = bench.all(vec![
        Operation::Push(vec![job("a"), bad]),
        finished(&claimed, Becomes::Done(TaskStatus::Ok)),
        Operation::Push(vec![job("b")]),
    ]);
    assert!(
        matches!(&replies[0], Reply::Failed(why) if why.contains("no")),
        "{replies:?}"
    );
    assert!(matches!(&replies[2], Reply::Pushed(_)));
    assert_eq!(changes.keys().collect::<Vec<_>>(), [&group("b")]);
    assert_eq!(bench.state(claimed.start.id), "done");
}

#[test]
fn what_another_process_had_is_seen_and_can_be_ended() {
    let bench = bench();
    let id = bench.push(job(""));
    bench.claim("").expect("a job");
    let mut next = bench.database.open("next");
    let foreign = next.perform(&[Operation::Foreign], 2).expect("a commit");
    let Reply::Foreign { jobs, owners, .. } = &foreign.replies[0] else {
        panic!("{foreign:?}");
    };
    assert!(owners.is_empty(), "it has not said that it is there");
    assert_eq!(foreign.waiting, Some(Changes::new()));
    assert_eq!(
        (jobs[0].start.id, jobs[0].owner.as_str(), jobs[0].start.attempt),
        (id, bench.database.owner("me").as_str(), 1)
    );
    let mut again = bench.claim_of(id);
    again.start.attempt = 1;
    let done = next
        .perform(&[finished(&again, Becomes::Again(0))], 2)
        .expect("a commit");
    assert_eq!(done.changes[&group("")], 1);
}

impl Bench {
    fn claim_of(&self, id: i64) -> Claimed {
        Claimed {
            start: Start {
                id,
                ..Start::default()
            },
            queue: "q".into(),
            tenant: String::new(),
            kind: "k".into(),
            payload: Vec::new(),
            content_type: String::new(),
            key: None,
            traceparent: None,
            steps: Vec::new(),
            waited_ms: 0,
        }
    }
}
