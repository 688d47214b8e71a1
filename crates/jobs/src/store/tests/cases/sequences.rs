//! Tests of sequences on every database.

use super::super::SequenceChange;
use super::*;
use forkyard_protocol::jobs::SequenceView;

impl Bench {
    fn change(&self, id: i64, change: SequenceChange) -> (SequenceView, Vec<i64>) {
        shown(self.one(Operation::Sequence(id, None, change)))
    }

    fn begin(&self, name: Option<&str>) -> SequenceView {
        let (queue, name) = ("q".to_owned(), name.map(str::to_owned));
        let total = Some(5);
        shown(self.one(Operation::BeginSequence { queue, name, total })).0
    }

    fn add(&self, id: i64, from: u64, count: usize) -> SequenceView {
        let jobs = vec![
            NewJob {
                kind: "k".into(),
                ..NewJob::default()
            };
            count
        ];
        self.change(id, SequenceChange::Add { from, jobs }).0
    }

    fn seen(&self, id: i64) -> SequenceView {
        self.change(id, SequenceChange::Nothing).0
    }

    fn end(&self, job: &Claimed, becomes: Becomes, outcome: Outcome) {
        let counters = job.start.counters;
        self.one(Operation::Finish(Box::new(Finished {
            id: job.start.id,
            attempt: job.start.attempt,
            verdict: Verdict {
                becomes,
                counters,
                outcome,
            },
            output: Output::default(),
            duration_ms: 1,
        })));
    }
}

fn shown(reply: Reply) -> (SequenceView, Vec<i64>) {
    match reply {
        Reply::Sequence(view, running) => (*view, running),
        other => panic!("{other:?}"),
    }
}

fn counts(view: &SequenceView) -> [u64; 6] {
    [
        view.given,
        view.waiting,
        view.running,
        view.done,
        view.failed,
        view.cancelled,
    ]
}

#[test]
fn what_was_added_is_not_added_again_and_each_job_is_counted_where_it_is() {
    let bench = bench();
    let id = bench.begin(None).id;
    assert_eq!(counts(&bench.add(id, 0, 3)), [3, 3, 0, 0, 0, 0]);
    // The reply was lost and the jobs come again; or there is a gap.
    assert_eq!(counts(&bench.add(id, 0, 3)), [3, 3, 0, 0, 0, 0]);
    assert_eq!(counts(&bench.add(id, 4, 1)), [3, 3, 0, 0, 0, 0]);
    let jobs = [
        bench.claim("").expect("a job"),
        bench.claim("").expect("a job"),
        bench.claim("").expect("a job"),
    ];
    assert_eq!(counts(&bench.seen(id)), [3, 0, 3, 0, 0, 0]);
    bench.end(&jobs[0], Becomes::Done(TaskStatus::Ok), Outcome::Done);
    bench.end(&jobs[1], Becomes::Failed, Outcome::Failed);
    bench.end(&jobs[2], Becomes::Again(0), Outcome::Failed);
    assert_eq!(counts(&bench.seen(id)), [3, 1, 0, 1, 1, 0]);
    bench.one(Operation::Change(
        Change::Retry,
        Selection::One(jobs[1].start.id, None),
    ));
    assert_eq!(counts(&bench.seen(id)), [3, 2, 0, 1, 0, 0]);
    let (ended, _) = bench.change(id, SequenceChange::End);
    assert_eq!(
        (ended.state.as_str(), ended.total, ended.is_over()),
        ("complete", Some(5), false)
    );
    assert_eq!(counts(&bench.add(id, 3, 1))[0], 3, "it takes no more");
}

#[test]
fn an_open_one_is_found_by_its_name_and_a_cancelled_one_lets_go_of_its_jobs() {
    let mut bench = bench();
    bench.now = 1_000;
    let id = bench.begin(Some("nightly")).id;
    bench.add(id, 0, 3);
    assert_eq!(bench.begin(Some("nightly")).given, 3);
    let running = bench.claim("").expect("a job");
    let (view, told) = bench.change(id, SequenceChange::Cancel);
    assert_eq!(
        (counts(&view), told),
        ([3, 0, 1, 0, 0, 2], vec![running.start.id])
    );
    assert_ne!(bench.begin(Some("nightly")).id, id, "another begins");
    bench.end(&running, Becomes::Cancelled, Outcome::Cancelled);
    assert!(bench.seen(id).is_over());
    bench.now = 5_000;
    bench.one(super::clean(2_000, 2_000));
    let gone = Operation::Sequence(id, None, SequenceChange::Nothing);
    assert_eq!(bench.one(gone), Reply::NoSequence);
}

#[test]
fn another_s_is_not_shown_and_not_touched() {
    let bench = bench();
    let id = bench.begin(None).id;
    bench.add(id, 0, 1);
    let queues = || Some(vec!["another".to_owned()]);
    let jobs = vec![NewJob::default()];
    for change in [
        SequenceChange::Nothing,
        SequenceChange::Cancel,
        SequenceChange::End,
        SequenceChange::Add { from: 1, jobs },
    ] {
        let operation = Operation::Sequence(id, queues(), change);
        assert_eq!(bench.one(operation), Reply::NoSequence);
    }
    assert_eq!(
        (counts(&bench.seen(id)), bench.seen(id).state.as_str()),
        ([1, 1, 0, 0, 0, 0], "open")
    );
}

#[test]
fn how_starts_ended_is_kept_but_for_a_good_end_and_not_for_ever() {
    let bench = bench();
    let id = bench.begin(None).id;
    bench.add(id, 0, 1);
    for _ in 0..25 {
        let job = bench.claim("").expect("a job");
        bench.end(&job, Becomes::Again(0), Outcome::Lost);
    }
    let job = bench.claim("").expect("a job");
    bench.end(&job, Becomes::Done(TaskStatus::Ok), Outcome::Done);
    let Reply::Show(Some(view)) = bench.one(Operation::Show(job.start.id)) else {
        panic!("no job");
    };
    let attempts: Vec<u32> = view.ends.iter().map(|end| end.attempt).collect();
    assert_eq!(attempts, (6..=25).collect::<Vec<u32>>());
    assert!(view.ends.iter().all(|end| end.outcome == "lost"));
    assert_eq!(
        (view.sequence, State::Done.name()),
        (Some(id), view.state.as_str())
    );
}

#[test]
fn jobs_that_were_there_are_counted_as_such() {
    let bench = bench();
    let id = bench.begin(None).id;
    let keyed = |key: &str| NewJob {
        key: Some(key.into()),
        ..job("")
    };
    let jobs = vec![keyed("a"), keyed("b"), keyed("a")];
    let (view, _) = bench.change(id, SequenceChange::Add { from: 0, jobs });
    assert_eq!((counts(&view), view.existed), ([3, 2, 0, 0, 0, 0], 1));
}
