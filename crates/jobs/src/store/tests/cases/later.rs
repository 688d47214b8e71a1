//! Tests of schedules, bulk changes and totals.

use super::{
    Becomes, Bench, By, Change, Filter, Fired, JobView, Kept, NewJob, Operation, Reply, Selection,
    SequenceChange, State, TaskStatus, bench, clean, job,
};

#[test]
fn a_schedule_pushes_and_moves_on_in_one_step() {
    let bench = bench();
    let fired = |count, skips_overlap, next_ms| {
        Operation::Fire(Box::new(Fired {
            name: "nightly".into(),
            spec: "30 2 * * * UTC".into(),
            jobs: vec![job(""); count],
            due_ms: None,
            next_ms: Some(next_ms),
            skips_overlap,
        }))
    };
    let pushed = |reply| match reply {
        Reply::Fired { pushed, .. } => pushed,
        other => panic!("{other:?}"),
    };
    assert_eq!(pushed(bench.one(fired(3, true, 9))), 1);
    assert_eq!(
        pushed(bench.one(fired(1, true, 10))),
        0,
        "the one before is not over"
    );
    assert_eq!(pushed(bench.one(fired(2, false, 11))), 2);
    assert_eq!(
        pushed(bench.one(fired(2, false, 11))),
        0,
        "another process was first"
    );
    let Reply::Loaded { schedules, .. } = bench.one(Operation::Load) else {
        panic!("nothing loaded");
    };
    let kept = Kept {
        name: "nightly".into(),
        spec: "30 2 * * * UTC".into(),
        next_ms: Some(11),
        former_ms: None,
    };
    assert_eq!(schedules, [kept]);
}

#[test]
fn a_schedule_that_was_put_off_by_a_wrong_clock_is_not() {
    let mut bench = bench();
    let fired = |due_ms: i64| {
        Operation::Fire(Box::new(Fired {
            name: "often".into(),
            spec: "*/5 * * * * UTC".into(),
            jobs: vec![job("")],
            due_ms: Some(due_ms),
            next_ms: Some(due_ms + 300_000),
            skips_overlap: false,
        }))
    };
    let pushed = |reply| match reply {
        Reply::Fired { pushed, .. } => pushed,
        other => panic!("{other:?}"),
    };
    let kept = |bench: &Bench| match bench.one(Operation::Load) {
        Reply::Loaded { mut schedules, .. } => schedules.remove(0),
        other => panic!("{other:?}"),
    };
    let year = 365 * 86_400_000;
    let right = bench.now;
    bench.now += year;
    assert_eq!(pushed(bench.one(fired(bench.now))), 1);
    let next = Some(right + year + 300_000);
    assert_eq!((kept(&bench).next_ms, kept(&bench).former_ms), (next, None));
    bench.now = right + 300_000;
    assert_eq!((kept(&bench).next_ms, kept(&bench).former_ms), (None, next));
    assert_eq!(pushed(bench.one(fired(bench.now))), 1);
    assert_eq!(
        pushed(bench.one(fired(bench.now))),
        0,
        "another process was first"
    );
    // One machine's clock is wrong, the store's is right.
    assert_eq!(pushed(bench.one(fired(right + year))), 0);
    assert_eq!(kept(&bench).next_ms, Some(bench.now + 300_000));
}

#[test]
fn what_ended_is_forgotten_after_its_time() {
    let mut bench = bench();
    let id = bench.push(job(""));
    let claimed = bench.claim("").expect("a job");
    bench.finish(&claimed, Becomes::Done(TaskStatus::Ok));
    bench.one(clean(1_000_000, 0));
    assert_eq!(bench.state(id), "done");
    bench.now += 1;
    bench.one(clean(1_000_001, 0));
    assert_eq!(bench.one(Operation::Show(id)), Reply::Show(None));
}

#[test]
fn sequences_of_one_tenant_have_turns_and_so_have_jobs_without_one() {
    let bench = bench();
    let sequence = |name: &str, count: usize| {
        let begin = Operation::BeginSequence {
            queue: "q".into(),
            name: Some(name.into()),
            total: None,
        };
        let Reply::Sequence(view, _) = bench.one(begin) else {
            panic!("no sequence");
        };
        let one = NewJob {
            kind: name.into(),
            ..job("t")
        };
        let jobs = vec![one; count];
        bench.one(Operation::Sequence(
            view.id,
            None,
            SequenceChange::Add { from: 0, jobs },
        ));
    };
    sequence("nightly", 5);
    let first = bench.claim("t").expect("the first");
    sequence("by-hand", 2);
    bench.push(job("t"));
    bench.push(NewJob {
        priority: Some(1),
        kind: "urgent".into(),
        ..job("t")
    });
    let order: Vec<String> = std::iter::from_fn(|| bench.claim("t"))
        .map(|job| job.kind)
        .collect();
    assert_eq!(
        order,
        [
            "urgent", "nightly", "by-hand", "k", "nightly", "by-hand", "nightly", "nightly"
        ]
    );
    // A job that comes back also has a turn.
    bench.finish(&first, Becomes::Again(0));
    assert_eq!(bench.claim("t").expect("again").start.id, first.start.id);
}

#[test]
fn many_jobs_are_changed_in_portions_and_those_that_are_pushed_meanwhile_are_not() {
    const COUNT: usize = 450;
    let bench = bench();
    bench.one(Operation::Push(vec![job(""); COUNT]));
    bench.push(job("other"));
    let mut next = Operation::Change(
        Change::Cancel,
        Selection::All(Filter {
            state: Some(State::Waiting),
            tenant: Some(String::new()),
            ..Filter::default()
        }),
    );
    let mut portions = Vec::new();
    loop {
        let Reply::Changed { count, rest, .. } = bench.one(next) else {
            panic!("nothing is changed");
        };
        portions.push(count);
        bench.push(job(""));
        match rest {
            Some(rest) => next = *rest,
            None => break,
        }
    }
    assert_eq!(portions, [200, 200, 50]);
    let Reply::Count(counts) = bench.one(Operation::Count(Filter::default())) else {
        panic!("no counts");
    };
    assert_eq!(counts["cancelled"], 450);
    assert_eq!(counts["waiting"], 4);
}

#[test]
fn the_last_job_of_each_key_is_found_and_pushed_again_as_it_was() {
    let bench = bench();
    let keyed = |key: &str, tenant: &str, payload: &str| NewJob {
        key: Some(key.into()),
        steps: vec!["a".into(), "b".into()],
        payload: payload.as_bytes().to_vec(),
        ..job(tenant)
    };
    for (key, tenant, payload) in [
        ("s/1", "x", "old"),
        ("s/1", "x", "new"),
        ("s/2", "y", "two"),
        ("t/1", "x", "other"),
    ] {
        let id = bench.push(keyed(key, tenant, payload));
        let claimed = bench.claim(tenant).expect("a job");
        bench.finish(&claimed, Becomes::Done(TaskStatus::Ok));
        assert_eq!(claimed.start.id, id);
    }
    bench.push(job("x"));
    let last = |by, like: Option<&str>| {
        let filter = Filter {
            limit: 10,
            ..Filter::default()
        };
        match bench.one(Operation::Last(by, filter, like.map(str::to_owned))) {
            Reply::List(jobs) => jobs,
            other => panic!("{other:?}"),
        }
    };
    let ids = |jobs: Vec<JobView>| jobs.iter().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(ids(last(By::Key, None)), [2, 3, 4]);
    assert_eq!(ids(last(By::Key, Some("s/*"))), [2, 3]);
    assert_eq!(ids(last(By::Tenant, None)), [5, 3]);
    assert_eq!(ids(last(By::Kind, None)), [5]);
    let Reply::Sequence(sequence, _) = bench.one(Operation::Again("q".into(), vec![2, 3])) else {
        panic!("no sequence");
    };
    assert_eq!(
        (sequence.given, sequence.waiting, sequence.state.as_str()),
        (2, 2, "complete")
    );
    let again = bench.claim("x").expect("a job of the sequence");
    assert_eq!(
        (again.key.as_deref(), again.payload.as_slice()),
        (Some("s/1"), b"new".as_slice())
    );
    assert_eq!(again.steps, ["a", "b"]);
}

#[test]
fn counts_and_lists_tell_what_there_is() {
    let bench = bench();
    for tenant in ["a", "b", "b"] {
        bench.push(job(tenant));
    }
    bench.push(NewJob {
        in_ms: Some(9_999),
        ..job("c")
    });
    let failing = bench.claim("a").expect("a job");
    bench.finish(&failing, Becomes::Failed);
    let Reply::Counts(counts) = bench.one(Operation::Counts) else {
        panic!("no counts");
    };
    assert_eq!((counts[0].scheduled, counts[0].failed), (1, 1));
    assert_eq!(counts[0].oldest_waiting_ms, Some(1_000_000));
    // Counters follow each change of state.
    bench.one(Operation::Change(
        Change::Retry,
        Selection::One(failing.start.id, None),
    ));
    bench.one(clean(0, 0));
    let Reply::Counts(counts) = bench.one(Operation::Counts) else {
        panic!("no counts");
    };
    assert_eq!((counts[0].scheduled, counts[0].failed), (1, 0));
    let listed = bench.one(Operation::List(Filter {
        tenant: Some("b".into()),
        state: Some(State::Waiting),
        limit: 10,
        ..Filter::default()
    }));
    assert!(
        matches!(&listed, Reply::List(jobs) if jobs.len() == 2),
        "{listed:?}"
    );
}
