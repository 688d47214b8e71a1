//! The store on a real server, Debian's, without a network.

use super::Postgresql;
use forkyard_config::PostgresqlServer;
use forkyard_jobs::core::schedule::Kept;
use forkyard_jobs::core::{Becomes, Counters, GroupName, Outcome, Start, TaskStatus, Verdict};
use forkyard_jobs::store::sql::Notice;
use forkyard_jobs::store::*;
use forkyard_protocol::jobs::{JobView, NewJob};
use postgres::{Client, NoTls};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

#[path = "../../jobs/src/store/tests/cases/mod.rs"]
mod cases;
mod encryption;
mod network;
use cases::finished;

const PATIENCE: Duration = Duration::from_secs(120);

struct Server {
    directory: PathBuf,
    /// Its port on 127.0.0.1, if any; its unix socket also has this number.
    port: Option<u16>,
    _script: Child,
}

fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(tempfile::tempdir().expect("a directory").keep(), None))
}

impl Server {
    fn start(directory: PathBuf, port: Option<u16>) -> Server {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/postgresql.sh");
        let mut child = Command::new("sh")
            .arg(script)
            .arg(&directory)
            .args(port.map(|port| port.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server of PostgreSQL");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("its first line");
        assert_eq!(line, "started\n");
        let server = Server {
            directory,
            port,
            _script: child,
        };
        let begun = Instant::now();
        while let Err(error) = Client::connect(&server.url("postgres"), NoTls) {
            assert!(begun.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn url(&self, database: &str) -> String {
        let port = self.port.map(|port| format!("&port={port}")).unwrap_or_default();
        format!(
            "postgresql://forkyard@/{database}?host={}{port}",
            self.directory.display()
        )
    }
}

fn opened(url: &str, node: &str) -> Result<Postgresql, StoreError> {
    Postgresql::open(&PostgresqlServer::parse(url).expect("a URL"), node)
}

struct TestDatabase {
    url: String,
}

impl TestDatabase {
    fn new() -> TestDatabase {
        TestDatabase::of(server())
    }

    fn of(server: &Server) -> TestDatabase {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let name = format!("jobs{}", NUMBERS.fetch_add(1, Ordering::Relaxed));
        let mut admin = Client::connect(&server.url("postgres"), NoTls).expect("the server");
        admin
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .expect("a database");
        TestDatabase {
            url: server.url(&name),
        }
    }

    fn raw(&self) -> Client {
        Client::connect(&self.url, NoTls).expect("the database")
    }

    fn open_of(&self, node: &str, owner: &str) -> Store {
        let database = opened(&self.url, node).expect("the database").with_own_time();
        Store::new(Box::new(database), owner, Duration::from_secs(60))
    }

    fn open(&self, owner: &str) -> Store {
        self.open_of("node", owner)
    }

    fn cut(&self) {
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'forkyard-jobs' \
                    AND datname = current_database()";
        assert!(!self.raw().query(kill, &[]).expect("an end").is_empty());
    }

    /// The owner name of a process.
    fn owner(&self, name: &str) -> String {
        format!("node {name}")
    }

    fn refuse(&self, kind: &str) {
        let sql = format!("ALTER TABLE forkyard.job ADD CONSTRAINT no CHECK (kind <> '{kind}')");
        self.raw().batch_execute(&sql).expect("a constraint");
    }
}

fn job(tenant: &str) -> NewJob {
    NewJob {
        queue: "q".into(),
        kind: "k".into(),
        tenant: tenant.into(),
        payload: b"{}".to_vec(),
        ..NewJob::default()
    }
}

fn perform(store: &mut Store, operation: Operation, now_ms: i64) -> (Reply, Committed) {
    let mut done = store.perform(&[operation], now_ms).expect("a commit");
    (done.replies.remove(0), done)
}

fn push(store: &mut Store, job: NewJob) -> i64 {
    match perform(store, Operation::Push(vec![job]), 1).0 {
        Reply::Pushed(pushed) => pushed[0].id,
        other => panic!("{other:?}"),
    }
}

fn claim(store: &mut Store, tenant: &str, now_ms: i64) -> (Option<Claimed>, Option<Changes>) {
    let claim = Operation::Claim(GroupName::new("q", tenant));
    match perform(store, claim, now_ms) {
        (Reply::Claimed(_, job), done) => (job.map(|job| *job), done.waiting),
        (other, _) => panic!("{other:?}"),
    }
}

fn foreign(store: &mut Store, now_ms: i64) -> (Vec<ForeignJob>, Vec<String>) {
    match perform(store, Operation::Foreign, now_ms).0 {
        Reply::Foreign { jobs, paused, .. } => (jobs, paused),
        other => panic!("{other:?}"),
    }
}

fn heard(store: &mut Store) -> impl Fn() -> Notice + use<> {
    let (said, heard) = std::sync::mpsc::channel();
    store
        .listen(Box::new(move |notice| _ = said.send(notice)))
        .expect("a thread");
    move || heard.recv_timeout(PATIENCE).expect("a notice")
}

/// A job that runs on one machine and is cancelled by the other; returns the next notice.
fn heard_of_a_job(one: &mut Store, two: &mut Store) -> (impl Fn() -> Notice + use<>, i64) {
    let next = heard(two);
    assert_eq!(next(), Notice::News, "it hears from now on");
    let id = push(one, job(""));
    assert_eq!(next(), Notice::News);
    claim(one, "", 1).0.expect("a job");
    perform(
        two,
        Operation::Change(Change::Cancel, Selection::One(id, None)),
        1,
    );
    (next, id)
}

#[test]
fn of_two_machines_each_job_has_one() {
    let database = TestDatabase::new();
    let (mut one, two) = (database.open_of("one", "a"), database.open_of("two", "b"));
    let ids: Vec<i64> = (0..40).map(|_| push(&mut one, job(""))).collect();
    let mut claimed: Vec<i64> = std::thread::scope(|scope| {
        let take = |store: Store| {
            scope.spawn(move || {
                let mut store = store;
                let mut taken = Vec::new();
                while let (Some(job), _) = claim(&mut store, "", 1) {
                    taken.push(job.start.id);
                }
                taken
            })
        };
        let (one, two) = (take(one), take(two));
        let mut all = one.join().expect("one");
        all.extend(two.join().expect("two"));
        all
    });
    claimed.sort_unstable();
    assert_eq!(claimed, ids);
}

/// The server's plan depends on its statistics, which may be outdated.
#[test]
fn a_claim_takes_one_job_whatever_the_server_takes_the_table_for() {
    let database = TestDatabase::new();
    let mut store = database.open("me");
    let mut raw = database.raw();
    let mut take_for_empty = || {
        raw.batch_execute("ANALYZE forkyard.ready; ANALYZE forkyard.later; ANALYZE forkyard.blocked")
            .expect("statistics");
    };
    push(&mut store, job(""));
    let first = claim(&mut store, "", 1).0.expect("a job");
    perform(&mut store, finished(&first, Becomes::Done(TaskStatus::Ok)), 1);
    take_for_empty();
    let serial = |at_ms| NewJob {
        serial: Some("s".into()),
        at_ms,
        ..job("")
    };
    let mut ids: Vec<i64> = (0..20).map(|_| push(&mut store, job(""))).collect();
    ids.extend((0..5).map(|_| push(&mut store, serial(None))));
    ids.extend((0..5).map(|_| push(&mut store, serial(Some(5)))));
    perform(&mut store, Operation::Promote, 6);
    let mut claimed = Vec::new();
    while let (Some(job), _) = claim(&mut store, "", 6) {
        perform(&mut store, finished(&job, Becomes::Done(TaskStatus::Ok)), 6);
        claimed.push(job.start.id);
    }
    assert_eq!(claimed, ids);
}

#[test]
fn a_claim_that_finds_nothing_says_what_there_is() {
    let database = TestDatabase::new();
    let (mut one, mut two) = (database.open_of("one", "a"), database.open_of("two", "b"));
    push(&mut one, job(""));
    claim(&mut two, "", 1).0.expect("a job");
    let (none, waiting) = claim(&mut one, "", 1);
    assert_eq!((none, waiting), (None, Some(Changes::new())));
}

#[test]
fn the_jobs_of_a_machine_that_is_silent_are_seen_by_others_and_its_word_comes_too_late() {
    let database = TestDatabase::new();
    let (mut one, mut two) = (database.open_of("one", "a"), database.open_of("two", "b"));
    for store in [&mut one, &mut two] {
        perform(store, Operation::Load, 1_000);
    }
    let id = push(&mut one, job(""));
    let first = claim(&mut one, "", 1_000).0.expect("a job");
    assert_eq!(foreign(&mut two, 60_999).0, [], "it may be silent for so long");
    let seen = foreign(&mut two, 61_001).0;
    assert_eq!((seen[0].start.id, seen[0].owner.as_str()), (id, "one a"));
    let lost = finished(&first, Becomes::Again(0));
    perform(&mut two, lost, 61_001);
    let second = claim(&mut two, "", 61_001).0.expect("it waits again");
    assert_eq!(second.start.attempt, 2);
    perform(&mut one, finished(&first, Becomes::Done(TaskStatus::Ok)), 61_002);
    let (Reply::Show(Some(shown)), _) = perform(&mut one, Operation::Show(id), 61_002) else {
        panic!("no job");
    };
    assert_eq!((shown.state.as_str(), shown.attempt), ("running", 2));
    // A heartbeat keeps a machine's jobs.
    foreign(&mut one, 121_000);
    foreign(&mut two, 121_000);
    assert_eq!(foreign(&mut one, 122_000).0, []);
}

#[test]
fn a_transaction_whose_answer_was_lost_counts_as_what_it_was() {
    let database = TestDatabase::new();
    let mut store = database.open("me");
    let id = push(&mut store, job(""));
    let mut raw = database.raw();
    database.cut();
    claim(&mut store, "", 1).0.expect("a job");
    let running: i64 = raw
        .query_one("SELECT id FROM forkyard.running", &[])
        .expect("one")
        .get(0);
    assert_eq!(running, id);
    raw.batch_execute(
        "CREATE FUNCTION forkyard.die() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER die AFTER INSERT ON forkyard.ready DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION forkyard.die()",
    )
    .expect("a trigger");
    let failed = store.perform(&[Operation::Push(vec![job("t")])], 1);
    assert!(failed.is_err() && store.is_in_doubt(), "{failed:?}");
    raw.batch_execute("DROP TRIGGER die ON forkyard.ready")
        .expect("no trigger");
    let begun = Instant::now();
    let brought = loop {
        match store.resolve() {
            Ok(brought) => break brought,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
    };
    assert!(brought.is_none() && !store.is_in_doubt());
    let jobs: i64 = raw
        .query_one("SELECT count(*) FROM forkyard.job", &[])
        .expect("a count")
        .get(0);
    assert_eq!(jobs, 1, "the push was undone");
}

#[test]
fn how_a_job_ended_is_not_lost_while_another_transaction_has_its_row() {
    let database = TestDatabase::new();
    let mut store = database.open("me");
    let id = push(&mut store, job(""));
    let claimed = claim(&mut store, "", 1).0.expect("a job");
    let mut other = database.raw();
    other
        .batch_execute("BEGIN; SELECT FROM forkyard.job FOR UPDATE")
        .expect("a lock");
    let end = finished(&claimed, Becomes::Done(TaskStatus::Ok));
    let pushed = Operation::Push(vec![job("")]);
    let refused = store.perform(&[pushed, end], 1);
    assert!(refused.is_err() && !store.is_in_doubt(), "{refused:?}");
    other.batch_execute("COMMIT").expect("no lock");
    perform(&mut store, finished(&claimed, Becomes::Done(TaskStatus::Ok)), 1);
    let (Reply::Show(Some(shown)), _) = perform(&mut store, Operation::Show(id), 1) else {
        panic!("no job");
    };
    assert_eq!(shown.state, "done");
}

#[test]
fn an_application_pushes_in_its_own_transaction() {
    let database = TestDatabase::new();
    let mut store = database.open("me");
    let mut application = database.raw();
    application
        .batch_execute("CREATE ROLE shop; GRANT USAGE ON SCHEMA forkyard TO shop; SET ROLE shop")
        .expect("a role");
    let denied = application.query("SELECT forkyard.push('q', 'k')", &[]);
    assert!(denied.is_err(), "it was not granted");
    application
        .batch_execute("RESET ROLE; GRANT EXECUTE ON FUNCTION forkyard.push TO shop; SET ROLE shop")
        .expect("a right");
    for (end, count) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        application.batch_execute("BEGIN").expect("a transaction");
        let push = "SELECT forkyard.push('q', 'welcome', '{\"user\": 7}', key => 'welcome/7', tenant => 't', \
                    steps => ARRAY['a', 'b'], timeout => '90 s', attempts => 3)";
        let first: i64 = application.query_one(push, &[]).expect("a job").get(0);
        let second: i64 = application.query_one(push, &[]).expect("the same").get(0);
        assert_eq!(first, second, "its key");
        application.batch_execute(end).expect("its end");
        perform(&mut store, Operation::Promote, i64::MAX / 2);
        assert_eq!(store.waiting().expect("counts").len(), count);
    }
    let claimed = claim(&mut store, "t", i64::MAX / 2).0.expect("a job");
    assert_eq!(claimed.payload, b"{\"user\": 7}");
    assert_eq!(
        (
            claimed.steps.len(),
            claimed.start.timeout_ms,
            claimed.start.most_failures
        ),
        (2, Some(90_000), Some(3))
    );
    assert_eq!(claimed.kind, "welcome");
    for wrong in ["('', 'k')", "('q', E'a\\nb')", "('q', 'k', attempts => 0)"] {
        let refused = application.query(&format!("SELECT forkyard.push{wrong}"), &[]);
        assert!(refused.is_err(), "{wrong}");
    }
    assert!(
        application.query("SELECT 1 FROM forkyard.job", &[]).is_err(),
        "no right to the tables"
    );
}

#[test]
fn what_one_machine_does_another_hears() {
    let database = TestDatabase::new();
    let (mut one, mut two) = (database.open_of("one", "a"), database.open_of("two", "b"));
    let (next, id) = heard_of_a_job(&mut one, &mut two);
    perform(
        &mut one,
        Operation::Change(Change::Cancel, Selection::One(id, None)),
        1,
    );
    assert_eq!(next(), Notice::Cancel(id), "not its own");
    let queue = "q".to_owned();
    let pause = Operation::Pause {
        queue,
        reason: None,
        is_paused: true,
    };
    perform(&mut one, pause, 1);
    assert_eq!(next(), Notice::News);
    assert_eq!(foreign(&mut two, 1).1, ["q"]);
}

#[test]
fn what_is_to_be_cancelled_is_known_to_a_machine_that_did_not_hear_of_it() {
    let database = TestDatabase::new();
    let (mut one, mut two) = (database.open_of("one", "a"), database.open_of("two", "b"));
    let ids = [push(&mut one, job("")), push(&mut one, job(""))];
    claim(&mut one, "", 1).0.expect("a job");
    claim(&mut two, "", 1).0.expect("a job");
    perform(
        &mut two,
        Operation::Change(Change::Cancel, Selection::One(ids[0], None)),
        1,
    );
    let cancelled = |store: &mut Store| match perform(store, Operation::Foreign, 2).0 {
        Reply::Foreign { cancelled, .. } => cancelled,
        other => panic!("{other:?}"),
    };
    assert_eq!((cancelled(&mut one), cancelled(&mut two)), (vec![ids[0]], vec![]));
    assert_eq!(cancelled(&mut one), [ids[0]], "until it has ended");
}

#[test]
fn a_schedule_of_two_machines_pushes_once() {
    let database = TestDatabase::new();
    let (mut one, mut two) = (database.open_of("one", "a"), database.open_of("two", "b"));
    let fire = |store: &mut Store| {
        let fired = Fired {
            name: "nightly".into(),
            spec: "30 2 * * * UTC".into(),
            jobs: vec![job("")],
            due_ms: None,
            next_ms: Some(9),
            skips_overlap: false,
        };
        match perform(store, Operation::Fire(Box::new(fired)), 5).0 {
            Reply::Fired { pushed, .. } => pushed,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((fire(&mut one), fire(&mut two)), (1, 0));
}

#[test]
fn another_version_is_refused() {
    let database = TestDatabase::new();
    drop(database.open("me"));
    database
        .raw()
        .batch_execute("UPDATE forkyard.store SET version = 99")
        .expect("a version");
    let opened = opened(&database.url, "node").map(|_| ());
    assert!(matches!(opened, Err(StoreError::Version(_, 99))), "{opened:?}");
}

#[test]
fn tables_of_the_version_before_are_brought_up_to_date() {
    let database = TestDatabase::new();
    let mut store = database.open("me");
    let (queue, name, total) = ("q".to_owned(), None, None);
    perform(&mut store, Operation::BeginSequence { queue, name, total }, 5);
    let (from, jobs) = (0, vec![job("")]);
    let change = |change| Operation::Sequence(1, None, change);
    let later = NewJob {
        in_ms: Some(1_000),
        ..job("")
    };
    perform(&mut store, Operation::Push(vec![job(""), later]), 5);
    perform(&mut store, change(SequenceChange::Nothing), 5);
    perform(&mut store, change(SequenceChange::Add { from, jobs }), 5);
    drop(store);
    database
        .raw()
        .batch_execute(
            "SET search_path = forkyard; DROP TABLE tally; DROP FUNCTION tally_job CASCADE; DROP TABLE ready;
             CREATE TABLE ready (queue TEXT NOT NULL, tenant TEXT NOT NULL, priority BIGINT NOT NULL, id BIGINT NOT NULL,
               PRIMARY KEY (queue, tenant, priority, id));
             INSERT INTO ready SELECT queue, tenant, priority, id FROM job WHERE state = 0;
             ALTER TABLE job DROP COLUMN result_cut; ALTER TABLE job DROP COLUMN ref; ALTER TABLE step DROP COLUMN output_cut;
             DROP INDEX job_trouble_ended; CREATE INDEX job_trouble ON job (queue, state) WHERE state IN (4, 5);
             UPDATE store SET version = 3",
        )
        .expect("tables of version 3");
    let mut store = database.open("me");
    let Reply::Counts(counts) = perform(&mut store, Operation::Counts, 5).0 else {
        panic!("no counts");
    };
    assert_eq!(counts[0].scheduled, 1);
    let claim = || Operation::Claim(GroupName::new("q", ""));
    let mut claimed = || match perform(&mut store, claim(), 5).0 {
        Reply::Claimed(_, job) => job.map(|job| job.start.id),
        other => panic!("{other:?}"),
    };
    assert_eq!([claimed(), claimed(), claimed()], [Some(3), Some(1), None]);
    let version: i32 = database
        .raw()
        .query_one("SELECT version FROM forkyard.store", &[])
        .expect("a version")
        .get(0);
    assert_eq!(version, tables::VERSION);
}
