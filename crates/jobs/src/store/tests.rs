//! The store on a real file.

use super::*;
use crate::core::schedule::Kept;
use crate::core::{Becomes, Counters, Outcome, TaskStatus, Verdict};
use forkyard_protocol::jobs::{JobView, NewJob};
use std::path::PathBuf;
use std::time::Duration;

#[path = "cases.rs"]
mod cases;

/// A file.
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

    /// The name of a process among owners.
    fn owner(&self, name: &str) -> String {
        name.to_owned()
    }

    /// Lets the database refuse jobs of this kind.
    fn refuse(&self, kind: &str) {
        let raw = rusqlite::Connection::open(&self.path).expect("the file");
        raw.execute_batch(&format!(
            "CREATE TRIGGER no BEFORE INSERT ON job WHEN NEW.kind = '{kind}' BEGIN SELECT RAISE(ABORT, 'no'); END",
        ))
        .expect("a trigger");
    }
}

/// A database whose statements find the jobs that they need by an index: there are many that have ended.
struct Explained(Sqlite);

impl Explained {
    fn explain(&mut self, statement: &str, values: &[Value<'_>]) -> Result<()> {
        // What a person asks for among all jobs.
        const LOOKED_THROUGH: [&str; 3] = [
            "SELECT id, queue, kind",
            "SELECT state, count(*) FROM job",
            "SELECT id, state FROM job WHERE state = ?1",
        ];
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
