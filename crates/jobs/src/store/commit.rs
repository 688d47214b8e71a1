//! Transactions: a batch of operations and their replies.

use super::operation::{Operation, Reply};
use super::sql::{Database, Notice, Present, SqlError, Trouble};
use super::{Changes, Turns, Work, tables};
use crate::core::GroupName;
use std::fmt;
use std::path::Path;

const TRIES: u32 = 10;
const CONNECTIONS: u32 = 2;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{0}: {1}")]
    Database(String, #[source] SqlError),
    #[error("{0} is a database of another program; name another as store")]
    Foreign(String),
    #[error(
        "{0} has version {1}, and this program reads {oldest} to {own}: {advice}",
        oldest = tables::OLDEST,
        own = tables::VERSION,
        advice = advice(*.1)
    )]
    Version(String, i32),
    #[error("{0}; {1}")]
    Remedied(Box<StoreError>, String),
}

impl StoreError {
    pub(super) fn of_file(file: &Path, error: impl Into<SqlError>) -> StoreError {
        StoreError::Database(file.display().to_string(), error.into())
    }
}

/// What to do about a store of this version.
fn advice(version: i32) -> &'static str {
    match version > tables::VERSION {
        true => "a later forkyard wrote it; install that one, or put back the copy that it made",
        false => "an earlier forkyard wrote it, and one between has to bring it up to date",
    }
}

#[derive(Debug)]
pub struct Committed {
    /// The replies, in the order of the operations.
    pub replies: Vec<Reply>,
    pub changes: Changes,
    /// When the next scheduled job is due, if that may have changed.
    pub due: Option<Option<i64>>,
    pub waiting: Option<Changes>,
}

enum CommitFailure {
    OfOne,
    OfAll(SqlError),
}

pub struct Store {
    database: Box<dyn Database>,
    owner: String,
    /// The longest silence of a machine before its jobs go to others.
    lease_ms: i64,
    turns: Turns,
    /// The result of the last transaction while its commit is in doubt.
    doubtful: Option<Committed>,
}

impl Store {
    /// A store in this database. `owner`: this process's name.
    pub fn new(database: Box<dyn Database>, owner: &str, lease: std::time::Duration) -> Store {
        let owner = match database.node() {
            Some(node) => format!("{node} {owner}"),
            None => owner.to_owned(),
        };
        Store {
            database,
            owner,
            lease_ms: i64::try_from(lease.as_millis()).unwrap_or(i64::MAX),
            turns: Turns::new(),
            doubtful: None,
        }
    }

    /// A second, read-only connection to the store.
    ///
    /// # Errors
    /// The connection failed.
    pub fn reader(&self) -> Result<Store, StoreError> {
        let database = self.database.reader().map_err(|error| self.failed(error))?;
        Ok(Store {
            database,
            owner: self.owner.clone(),
            lease_ms: self.lease_ms,
            turns: Turns::new(),
            doubtful: None,
        })
    }

    pub fn is_shared(&self) -> bool {
        self.database.node().is_some()
    }

    /// Listens for notices of other machines.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn listen(&mut self, hear: Box<dyn Fn(Notice) + Send>) -> std::io::Result<()> {
        self.database.listen(hear)
    }

    /// Performs all operations in one transaction.
    ///
    /// # Errors
    /// Nothing was done, unless [`Store::is_in_doubt`].
    pub fn perform(&mut self, operations: &[Operation], now_ms: i64) -> Result<Committed, StoreError> {
        // A failed operation undoes the batch. Only then, each is repeated with its own savepoint.
        let mut is_each_alone = false;
        let mut cuts = 0;
        for _ in 0..TRIES {
            let error = match self.attempt(operations, now_ms, is_each_alone) {
                Ok(committed) => return Ok(committed),
                Err(CommitFailure::OfOne) => {
                    self.database.roll_back();
                    is_each_alone = true;
                    continue;
                }
                Err(CommitFailure::OfAll(error)) => error,
            };
            if !self.database.is_in_doubt() {
                self.database.roll_back();
                cuts += u32::from(error.trouble == Trouble::Cut);
                if error.trouble == Trouble::Again || (error.trouble == Trouble::Cut && cuts <= CONNECTIONS) {
                    continue;
                }
            }
            return Err(self.failed(error));
        }
        let message = "other transactions stand in the way";
        Err(self.failed(SqlError::new(Trouble::Again, message)))
    }

    fn failed(&self, error: SqlError) -> StoreError {
        StoreError::Database(self.database.name(), error)
    }

    fn attempt(
        &mut self,
        operations: &[Operation],
        own_ms: i64,
        is_each_alone: bool,
    ) -> Result<Committed, CommitFailure> {
        let of_all = CommitFailure::OfAll;
        self.database.begin().map_err(of_all)?;
        let now_ms = self.database.now_ms(own_ms).map_err(of_all)?;
        let mut work = Work {
            database: &mut *self.database,
            changes: Changes::new(),
            is_due_changed: false,
            is_recounted: false,
            is_news: false,
            owner: &self.owner,
            turns: &mut self.turns,
            lease_ms: self.lease_ms,
            now_ms,
            ahead_ms: own_ms - now_ms,
        };
        let mut replies = Vec::with_capacity(operations.len());
        for operation in operations {
            replies.push(match is_each_alone {
                true => one(&mut work, operation).map_err(of_all)?,
                false => work.perform(operation).map_err(|error| match error.trouble {
                    Trouble::Statement | Trouble::Held => CommitFailure::OfOne,
                    Trouble::Again | Trouble::Cut | Trouble::Database => CommitFailure::OfAll(error),
                })?,
            });
        }
        let due = match work.is_due_changed {
            true => Some(work.due().map_err(of_all)?),
            false => None,
        };
        work.changes.retain(|_, change| *change != 0);
        let is_news = work.is_news || work.changes.values().any(|change| *change > 0);
        let waiting = match work.is_recounted {
            true => Some(count_waiting(work.database).map_err(of_all)?),
            false => None,
        };
        let committed = Committed {
            replies,
            changes: work.changes,
            due,
            waiting,
        };
        if is_news {
            self.database.notify(&Notice::News).map_err(of_all)?;
        }
        match self.database.commit() {
            Ok(()) => Ok(committed),
            Err(error) => {
                self.doubtful = self.database.is_in_doubt().then_some(committed);
                Err(of_all(error))
            }
        }
    }

    pub fn is_in_doubt(&self) -> bool {
        self.doubtful.is_some()
    }

    /// Resolves a commit in doubt; returns its result if it succeeded.
    ///
    /// # Errors
    /// The outcome is still unknown.
    pub fn resolve(&mut self) -> Result<Option<Committed>, StoreError> {
        let resolved = self.database.resolve();
        let was_committed = resolved.map_err(|error| self.failed(error))?;
        Ok(self.doubtful.take().filter(|_| was_committed))
    }

    pub fn syncer(&self) -> Option<super::sql::Syncer> {
        self.database.syncer()
    }

    /// Checks that the store is writable.
    ///
    /// # Errors
    /// It is not.
    pub fn probe(&mut self) -> Result<(), StoreError> {
        let done = self.database.probe();
        done.map_err(|error| self.failed(error))
    }

    /// Counts the claimable jobs of each group.
    ///
    /// # Errors
    /// The database can't be read.
    pub fn waiting(&mut self) -> Result<Changes, StoreError> {
        let counted = count_waiting(&mut *self.database);
        counted.map_err(|error| self.failed(error))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("owner", &self.owner).finish()
    }
}

fn count_waiting(database: &mut dyn Database) -> super::sql::Result<Changes> {
    let count = "SELECT queue, tenant, count(*) FROM ready GROUP BY queue, tenant";
    let rows = database.all(count, &[], |row| {
        Ok((GroupName::new(row.word(0)?, row.word(1)?), row.number(2)?))
    })?;
    Ok(rows.into_iter().collect())
}

/// Whether only this operation is refused after such a failure. The end of a job must be written eventually.
fn is_refused(operation: &Operation, trouble: Trouble) -> bool {
    trouble == Trouble::Statement || (trouble == Trouble::Held && !operation.has_to_be_written())
}

/// Performs one operation with a savepoint.
fn one(work: &mut Work<'_>, operation: &Operation) -> super::sql::Result<Reply> {
    work.database.execute("SAVEPOINT one", &[])?;
    let before = work.changes.clone();
    match work.perform(operation) {
        Ok(reply) => {
            work.database.execute("RELEASE SAVEPOINT one", &[])?;
            Ok(reply)
        }
        Err(error) if !is_refused(operation, error.trouble) => Err(error),
        Err(error) => {
            work.database.execute("ROLLBACK TO SAVEPOINT one", &[])?;
            work.database.execute("RELEASE SAVEPOINT one", &[])?;
            work.changes = before;
            Ok(match operation {
                Operation::Claim(group) => {
                    log::error!("jobs: a job of queue {} can't be claimed: {error}", group.queue);
                    Reply::Claimed(group.clone(), None)
                }
                _ => Reply::Failed(error.to_string()),
            })
        }
    }
}
