use super::*;
use crate::core::schedule::Kept;
use crate::core::{Becomes, Counters, GroupName, Outcome, Start, TaskStatus, Verdict};
use forkyard_protocol::jobs::{JobView, NewJob};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod cases;

struct TestDatabase {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl TestDatabase {
    fn new() -> TestDatabase {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.db");
        TestDatabase { _dir: dir, path }
    }

    fn open(&self, owner: &str) -> Store {
        let database = Explained(Sqlite::open(&self.path).expect("a file"));
        Store::new(Box::new(database), owner, Duration::from_secs(60))
    }

    /// The owner name of a process.
    fn owner(&self, name: &str) -> String {
        name.to_owned()
    }

    fn refuse(&self, kind: &str) {
        let raw = rusqlite::Connection::open(&self.path).expect("the file");
        raw.execute_batch(&format!(
            "CREATE TRIGGER no BEFORE INSERT ON job WHEN NEW.kind = '{kind}' BEGIN SELECT RAISE(ABORT, 'no'); END",
        ))
        .expect("a trigger");
    }
}

struct Explained(Sqlite);

impl Explained {
    fn explain(&mut self, statement: &str, values: &[Value<'_>]) -> Result<()> {
        const LOOKED_THROUGH: [&str; 2] = ["SELECT id, queue, kind", "SELECT state, count(*) FROM job"];
        let explain = format!("EXPLAIN QUERY PLAN {statement}");
        let database: &mut dyn Database = &mut self.0;
        let plan = database.all(&explain, values, |row| row.word(3))?;
        let is_whole = |step: &String| step == "SCAN job";
        let may = LOOKED_THROUGH.iter().any(|begin| statement.starts_with(begin));
        assert!(may || !plan.iter().any(is_whole), "{statement}: {plan:?}");
        Ok(())
    }
}

impl Database for Explained {
    fn name(&self) -> String {
        self.0.name()
    }

    fn execute(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64> {
        self.explain(statement, values)?;
        self.0.execute(statement, values)
    }

    fn query(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
        each: &mut dyn FnMut(&dyn sql::Row) -> Result<()>,
    ) -> Result<()> {
        self.explain(statement, values)?;
        self.0.query(statement, values, each)
    }

    fn begin(&mut self) -> Result<()> {
        self.0.begin()
    }

    fn commit(&mut self) -> Result<()> {
        self.0.commit()
    }

    fn roll_back(&mut self) {
        self.0.roll_back();
    }

    fn probe(&mut self) -> Result<()> {
        self.0.probe()
    }

    fn reader(&self) -> Result<Box<dyn Database>> {
        self.0.reader()
    }

    fn shrink(&mut self) -> Result<bool> {
        self.0.shrink()
    }
}

#[test]
fn another_programs_database_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("other.db");
    let raw = rusqlite::Connection::open(&path).expect("a file");
    raw.execute_batch("CREATE TABLE t (x)").expect("a table");
    assert!(matches!(Sqlite::open(&path), Err(StoreError::Foreign(_))));
    raw.execute_batch("PRAGMA application_id = 1719233122; PRAGMA user_version = 99")
        .expect("a version");
    assert!(matches!(Sqlite::open(&path), Err(StoreError::Version(_, 99))));
}

fn opened(path: &std::path::Path) -> Store {
    let database = Sqlite::open(path).expect("a store");
    Store::new(Box::new(database), "me", Duration::from_secs(60))
}

fn one(store: &mut Store, operation: Operation) -> Reply {
    store
        .perform(&[operation], 9)
        .expect("a commit")
        .replies
        .remove(0)
}

fn claim(store: &mut Store) -> Option<(i64, Vec<u8>)> {
    let claim = Operation::Claim(GroupName::new("q", ""));
    match one(store, claim) {
        Reply::Claimed(_, job) => job.map(|job| (job.start.id, job.payload)),
        other => panic!("{other:?}"),
    }
}

fn counted(store: &mut Store) -> StateCount {
    match one(store, Operation::Counts) {
        Reply::Counts(mut counts) => counts.remove(0),
        other => panic!("{other:?}"),
    }
}

fn new_job(payload: Vec<u8>) -> NewJob {
    NewJob {
        queue: "q".into(),
        kind: "k".into(),
        payload,
        ..NewJob::default()
    }
}

fn number(file: &std::path::Path, name: &str) -> i64 {
    let raw = rusqlite::Connection::open(file).expect("the file");
    let number = raw.pragma_query_value(None, name, |row| row.get(0));
    number.expect("a number")
}

#[test]
fn a_file_of_the_version_before_is_brought_up_to_date_after_a_copy_was_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("jobs.db");
    let raw = rusqlite::Connection::open(&path).expect("a file");
    raw.execute_batch(include_str!("version-3.sql"))
        .expect("a store of version 3");
    drop(raw);
    let mut store = opened(&path);
    let count = counted(&mut store);
    assert_eq!((count.scheduled, count.blocked, count.failed), (1, 1, 1));
    assert_eq!(claim(&mut store), Some((2, b"two".to_vec())));
    assert_eq!(claim(&mut store), Some((1, b"one".to_vec())));
    drop(store);
    assert_eq!(number(&path, "user_version"), i64::from(tables::VERSION));
    assert_eq!(number(&path, "auto_vacuum"), 2);
    let copy = dir.path().join("jobs.db.version-3");
    assert_eq!(number(&copy, "user_version"), 3);
    let copy = rusqlite::Connection::open(copy).expect("a copy");
    let jobs = copy.query_row("SELECT count(*) FROM job", [], |row| row.get::<_, i64>(0));
    assert_eq!(jobs.expect("jobs"), 5);
    drop(opened(&path));
}

#[test]
fn a_file_shrinks_in_portions_when_its_jobs_are_forgotten() {
    let database = TestDatabase::new();
    let mut store = database.open("me");
    for _ in 0..10 {
        let jobs = vec![new_job(vec![b'x'; 20_000]); 100];
        one(&mut store, Operation::Push(jobs));
    }
    let all = Filter {
        state: Some(State::Waiting),
        ..Filter::default()
    };
    let mut next = Some(Operation::Change(Change::Cancel, Selection::All(all)));
    while let Some(operation) = next {
        next = match one(&mut store, operation) {
            Reply::Changed { rest, .. } => rest.map(|rest| *rest),
            other => panic!("{other:?}"),
        };
    }
    let before = number(&database.path, "page_count");
    let mut portions = 0;
    while one(&mut store, cases::clean(10, 10)) == (Reply::Cleaned { is_more: true }) {
        portions += 1;
    }
    let after = number(&database.path, "page_count");
    assert!(after < before / 2 && portions > 5, "{before} {after} {portions}");
}

#[test]
fn a_copy_has_what_was_committed_and_writes_over_nothing() {
    let database = TestDatabase::new();
    let mut store = database.open("me");
    one(&mut store, Operation::Push(vec![new_job(Vec::new()); 3]));
    let to = database.path.with_file_name("copy.db");
    let copied = Sqlite::copy(&database.path, &to).expect("a copy");
    assert_eq!(copied, Copied::Whole { jobs: 3 });
    let names = std::fs::read_dir(to.parent().expect("a directory")).expect("a directory");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let beside = names.filter(|name| name.to_string_lossy().starts_with("copy.db"));
    assert_eq!(beside.count(), 1, "it is one file");
    let again = Sqlite::copy(&database.path, &to).expect_err("it is there");
    assert!(again.to_string().contains("there already"), "{again}");
    let waiting = opened(&to).waiting().expect("counts");
    assert_eq!(waiting.values().sum::<i64>(), 3);
    let gone = Sqlite::copy(&to.with_file_name("none"), &to.with_file_name("other"));
    assert!(gone.is_err());
}

#[test]
fn a_copy_is_of_one_moment_while_others_write() {
    let database = TestDatabase::new();
    let mut store = database.open("me");
    let job = || new_job(vec![b'x'; 10_000]);
    one(&mut store, Operation::Push((0..1_000).map(|_| job()).collect()));
    let to = database.path.with_file_name("copy.db");
    let is_copied = AtomicBool::new(false);
    let (begun, begins) = std::sync::mpsc::channel();
    let copied = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_copied.load(Ordering::Relaxed) {
                one(&mut store, Operation::Push(vec![job(); 2]));
                let _ = begun.send(());
            }
        });
        begins.recv().expect("a push");
        let copied = Sqlite::copy(&database.path, &to);
        is_copied.store(true, Ordering::Relaxed);
        copied
    });
    let Ok(Copied::Whole { jobs }) = copied else {
        panic!("{copied:?}");
    };
    let waiting: i64 = opened(&to).waiting().expect("counts").values().sum();
    assert!(
        jobs > 1_000 && jobs % 2 == 0 && waiting == jobs as i64,
        "{jobs} {waiting}"
    );
    let later: i64 = opened(&database.path).waiting().expect("counts").values().sum();
    assert!(later > waiting, "{later}");
}

fn damage(path: &std::path::Path, pages: std::ops::Range<u64>) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(path).expect("the file");
    for page in pages {
        file.write_all_at(&[0xA5; 4096], page * 4096).expect("noise");
    }
}

#[test]
fn of_a_damaged_file_what_can_be_read_is_copied() {
    const COUNT: u64 = 2_000;
    let database = TestDatabase::new();
    let mut store = database.open("me");
    let job = |number: u64| NewJob {
        serial: (number % 2 == 0).then(|| "one after the other".to_owned()),
        ..new_job(format!("{number:0>500}").into_bytes())
    };
    one(&mut store, Operation::Push((1..=COUNT).map(job).collect()));
    drop(store);
    let pages = std::fs::metadata(&database.path).expect("the file").len() / 4096;
    damage(&database.path, pages / 2..pages / 2 + 20);
    let to = database.path.with_file_name("copy.db");
    let copied = Sqlite::copy(&database.path, &to).expect("a copy");
    let Copied::Part { jobs, lost, .. } = copied else {
        panic!("it is whole");
    };
    assert!(jobs > 1_500 && jobs < COUNT, "{jobs}");
    assert_eq!(jobs + lost, COUNT);
    let mut copy = opened(&to);
    let mut claims = 0;
    while let Some((id, payload)) = claim(&mut copy) {
        claims += 1;
        assert_eq!(payload, format!("{id:0>500}").into_bytes());
    }
    let blocked = counted(&mut copy).blocked;
    assert_eq!(claims + blocked, jobs);
    assert!(blocked > 0);
    let Reply::Pushed(pushed) = one(&mut copy, Operation::Push(vec![job(1)])) else {
        panic!("no push");
    };
    assert_eq!(pushed[0].id.unsigned_abs(), COUNT + 1, "a new number");
    damage(&database.path, 0..1);
    let why = Sqlite::copy(&database.path, &to.with_file_name("none.db")).expect_err("noise");
    assert!(why.to_string().contains("not a database"), "{why}");
}

#[test]
fn of_a_truncated_file_what_can_be_read_is_copied() {
    const COUNT: u64 = 2_000;
    let database = TestDatabase::new();
    let mut store = database.open("me");
    let job = |number: u64| new_job(format!("{number:0>500}").into_bytes());
    one(&mut store, Operation::Push((1..=COUNT).map(job).collect()));
    drop(store);
    let file = std::fs::File::options()
        .write(true)
        .open(&database.path)
        .expect("the file");
    let length = file.metadata().expect("the file").len();
    file.set_len(length / 2 / 4096 * 4096).expect("truncated");
    let to = database.path.with_file_name("copy.db");
    let copied = Sqlite::copy(&database.path, &to).expect("a copy");
    let Copied::Part { jobs, .. } = copied else {
        panic!("it is whole");
    };
    assert!(jobs > 500 && jobs < COUNT, "{jobs}");
    let mut copy = opened(&to);
    let mut claims = 0;
    while let Some((id, payload)) = claim(&mut copy) {
        claims += 1;
        assert_eq!(payload, format!("{id:0>500}").into_bytes());
    }
    assert_eq!(claims, jobs);
}

#[test]
fn a_sequence_of_a_damaged_file_ends() {
    let database = TestDatabase::new();
    let mut store = database.open("me");
    let Reply::Sequence(view, _) = one(
        &mut store,
        Operation::BeginSequence {
            queue: "q".into(),
            name: None,
            total: None,
        },
    ) else {
        panic!("no sequence");
    };
    let jobs = vec![new_job(vec![b'x'; 500]); 1_000];
    for change in [SequenceChange::Add { from: 0, jobs }, SequenceChange::End] {
        one(&mut store, Operation::Sequence(view.id, None, change));
    }
    claim(&mut store).expect("a job runs");
    drop(store);
    let pages = std::fs::metadata(&database.path).expect("the file").len() / 4096;
    damage(&database.path, pages / 2..pages / 2 + 20);
    let to = database.path.with_file_name("copy.db");
    assert!(matches!(
        Sqlite::copy(&database.path, &to),
        Ok(Copied::Part { .. })
    ));
    let mut copy = opened(&to);
    let mut show = || {
        let show = Operation::Sequence(view.id, None, SequenceChange::Nothing);
        match one(&mut copy, show) {
            Reply::Sequence(view, _) => (view, claim(&mut copy)),
            other => panic!("{other:?}"),
        }
    };
    let (before, _) = show();
    assert_eq!(before.waiting + before.cancelled, 1_000);
    assert!(before.running == 0 && before.cancelled > 0, "{before:?}");
    let last = std::iter::repeat_with(show).find(|(_, job)| job.is_none());
    let (after, _) = last.expect("an end");
    assert_eq!((after.waiting, after.running), (0, before.waiting));
}
