//! SQLite: opens its file, creates tables and ends transactions.

mod checkpoint;
mod copy;
mod migrate;
mod salvage;

use super::sql::{Database, Result, Row, SqlError, Syncer, Trouble, Value};
use super::{StoreError, tables};
use checkpoint::Checkpoints;
pub use copy::Copied;
use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const APPLICATION_ID: i32 = 0x6679_6A62;
/// The wait for another process's lock: less than a push's time limit.
const BUSY: Duration = Duration::from_secs(1);
const STATEMENTS: usize = 64;
const LONGEST_LOG: i64 = 64 << 20;
/// The free pages that a file may keep, and the pages returned in one transaction.
const FREE_PAGES: i64 = 2_000;
const FREED_TOGETHER: i64 = 250;
const INCREMENTAL: i32 = 2;
/// A writer runs the checkpoint itself once the log has this many pages.
const CHECKPOINT_PAGES: u32 = 64_000;

/// SQLite's own table: a row that is changed to check that the file is writable.
const OWN_TABLES: &str = "CREATE TABLE synced (count INTEGER NOT NULL); INSERT INTO synced VALUES (0);";

#[derive(Debug)]
pub struct Sqlite {
    /// It has its own connection and ends first: the last one to close moves the whole log into the file.
    checkpoints: Checkpoints,
    connection: Connection,
    path: PathBuf,
    file: (u64, u64),
    /// Read-only, without locks that a writer waits for.
    is_reader: bool,
}

impl Sqlite {
    /// Opens or creates a database file.
    ///
    /// # Errors
    /// It can't be opened, or is another program's database.
    pub fn open(path: &Path) -> std::result::Result<Sqlite, StoreError> {
        let failed = |error: rusqlite::Error| StoreError::of_file(path, error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        connection
            .pragma_update(None, "auto_vacuum", INCREMENTAL)
            .and_then(|()| connection.pragma_update(None, "journal_mode", "WAL"))
            .and_then(|()| {
                connection.pragma_update_and_check(None, "journal_size_limit", LONGEST_LOG, |_| Ok(()))
            })
            .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES))
            // A commit does not wait for the disk: another thread syncs the log.
            .and_then(|()| connection.pragma_update(None, "synchronous", "NORMAL"))
            .map_err(failed)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        let (application, version) = (
            number("application_id").map_err(failed)?,
            number("user_version").map_err(failed)?,
        );
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(failed)?;
        match (application, version) {
            (APPLICATION_ID, tables::VERSION) => {}
            (APPLICATION_ID, version) => migrate::migrate(&connection, path, version)?,
            (0, 0) if tables == 0 => {
                connection
                    .execute_batch(&tables::statements(&tables::SQLITE))
                    .and_then(|()| connection.execute_batch(OWN_TABLES))
                    .map_err(failed)?;
                connection
                    .pragma_update(None, "application_id", APPLICATION_ID)
                    .and_then(|()| connection.pragma_update(None, "user_version", tables::VERSION))
                    .map_err(failed)?;
            }
            _ => return Err(StoreError::Foreign(path.display().to_string())),
        }
        connection.execute_batch("COMMIT").map_err(failed)?;
        let can_shrink = number("auto_vacuum").map_err(failed)? == INCREMENTAL;
        if !can_shrink && version == tables::OLDEST {
            migrate::rewrite(&connection, path);
        }
        // The log's directory entry must survive a power failure.
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        std::fs::File::open(directory.unwrap_or(Path::new(".")))
            .and_then(|directory| directory.sync_all())
            .map_err(|error| format!("its directory can't be brought to the disk: {error}"))
            .map_err(|message| StoreError::of_file(path, SqlError::of_database(message)))?;
        let file = file_at(path).map_err(|error| StoreError::of_file(path, SqlError::of_database(error)))?;
        Ok(Sqlite {
            connection,
            path: path.to_owned(),
            file,
            is_reader: false,
            checkpoints: Checkpoints::of(path),
        })
    }

    fn look_for_file(&self) -> Result<()> {
        let message = match file_at(&self.path) {
            Ok(file) if file == self.file => return Ok(()),
            Ok(_) => {
                "another file has taken its place; put it back, or restart the daemon to go on with the other"
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                "the file is gone; put it back, or restart the daemon to begin with an empty one"
            }
            Err(error) => return Err(SqlError::of_database(error)),
        };
        Err(SqlError::of_database(message))
    }
}

impl Database for Sqlite {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn execute(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64> {
        let mut statement = self.connection.prepare_cached(statement)?;
        Ok(statement.execute(rusqlite::params_from_iter(values))? as u64)
    }

    fn query(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.connection.prepare_cached(statement)?;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        while let Some(row) = rows.next()? {
            each(row)?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        self.look_for_file()?;
        let begin = if self.is_reader {
            "BEGIN"
        } else {
            "BEGIN IMMEDIATE"
        };
        self.execute(begin, &[]).map(|_| ())
    }

    fn commit(&mut self) -> Result<()> {
        self.execute("COMMIT", &[])?;
        if !self.is_reader {
            self.checkpoints.committed();
        }
        Ok(())
    }

    fn roll_back(&mut self) {
        if !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK", &[]);
        }
    }

    fn probe(&mut self) -> Result<()> {
        self.begin()?;
        let done = self.execute("UPDATE synced SET count = count + 1", &[]);
        let done = done.and_then(|_| self.commit());
        if done.is_err() {
            self.roll_back();
        }
        done
    }

    fn reader(&self) -> Result<Box<dyn Database>> {
        let connection = copy::open(&self.path)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(Box::new(Sqlite {
            connection,
            path: self.path.clone(),
            file: self.file,
            is_reader: true,
            checkpoints: Checkpoints::of(&self.path),
        }))
    }

    fn shrink(&mut self) -> Result<bool> {
        let number = |name: &str| {
            self.connection
                .pragma_query_value(None, name, |row| row.get::<_, i64>(0))
        };
        let free = number("freelist_count")?.saturating_sub(FREE_PAGES);
        if free <= 0 || number("auto_vacuum")? != i64::from(INCREMENTAL) {
            return Ok(false);
        }
        let free_some = format!("PRAGMA incremental_vacuum({})", free.min(FREED_TOGETHER));
        self.query(&free_some, &[], &mut |_| Ok(()))?;
        Ok(free > FREED_TOGETHER)
    }

    fn syncer(&self) -> Option<Syncer> {
        // SQLite has no lock on this file, so closing it releases none.
        let log = beside(&self.path, "-wal");
        Some(Box::new(move || std::fs::File::open(&log)?.sync_data()))
    }
}

fn file_at(path: &Path) -> std::io::Result<(u64, u64)> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// The file of this name next to a store, such as `jobs.db-wal`.
fn beside(store: &Path, suffix: &str) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes the rest of an earlier, unfinished copy.
fn remove_if_there(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(SqlError::of_database(error)),
        _ => Ok(()),
    }
}

impl Row for rusqlite::Row<'_> {
    fn int(&self, column: usize) -> Result<Option<i64>> {
        Ok(self.get(column)?)
    }

    fn text(&self, column: usize) -> Result<Option<String>> {
        Ok(self.get(column)?)
    }

    fn blob(&self, column: usize) -> Result<Option<Vec<u8>>> {
        Ok(self.get(column)?)
    }
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Int(number) => ValueRef::Integer(*number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl From<rusqlite::Error> for SqlError {
    fn from(error: rusqlite::Error) -> SqlError {
        use ErrorCode as Code;
        let trouble = match error.sqlite_error_code() {
            None
            | Some(
                Code::ConstraintViolation
                | Code::TypeMismatch
                | Code::TooBig
                | Code::ParameterOutOfRange
                // Everything without another code, such as a wrong statement.
                | Code::Unknown,
            ) => Trouble::Statement,
            Some(_) => Trouble::Database,
        };
        SqlError::new(trouble, error.to_string())
    }
}
