//! The store on a real file.

use super::*;
use crate::core::{Becomes, Counters, Outcome, TaskStatus, Verdict};
use forkyard_protocol::jobs::{JobView, NewJob};
use std::path::PathBuf;
use std::time::Duration;

#[path = "cases.rs"]
mod cases;

/// A file.
struct Place {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("jobs.db");
        Place { _dir: dir, path }
    }

    fn open(&self, owner: &str) -> Store {
        let database = Sqlite::open(&self.path).expect("a file");
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
