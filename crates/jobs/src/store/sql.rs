//! The database interface: statements with values, rows, transactions. SQLite and PostgreSQL share the statements; a
//! method covers each difference.

use std::fmt;

#[derive(Debug, Clone, Copy)]
pub enum Value<'v> {
    Null,
    Int(i64),
    Text(&'v str),
    Blob(&'v [u8]),
}

/// The values of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { &[$($crate::store::sql::Value::from($value)),*] };
}
pub(super) use values;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// One statement failed; others are not affected.
    Statement,
    /// Another transaction holds a lock for too long; the same may work later.
    Held,
    Again,
    /// The connection and its transaction ended; the same may work on a new one.
    Cut,
    /// The database failed; nothing works until it recovers.
    Database,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SqlError {
    pub trouble: Trouble,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, SqlError>;

pub trait Row {
    /// Reads a number.
    ///
    /// # Errors
    /// The value has another type.
    fn int(&self, column: usize) -> Result<Option<i64>>;
    /// Reads a text.
    ///
    /// # Errors
    /// The value has another type.
    fn text(&self, column: usize) -> Result<Option<String>>;
    /// Reads bytes.
    ///
    /// # Errors
    /// The value has another type.
    fn blob(&self, column: usize) -> Result<Option<Vec<u8>>>;
}

pub trait Database: Send {
    fn name(&self) -> String;

    /// Executes a statement; returns the number of changed rows.
    ///
    /// # Errors
    /// It was not executed.
    fn execute(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64>;

    /// Executes a query, and passes each row on.
    ///
    /// # Errors
    /// It was not executed, or a row was refused.
    fn query(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()>;

    /// Begins a write transaction.
    ///
    /// # Errors
    /// It failed.
    fn begin(&mut self) -> Result<()>;

    /// Commits.
    ///
    /// # Errors
    /// It failed, unless [`Database::is_in_doubt`].
    fn commit(&mut self) -> Result<()>;

    fn roll_back(&mut self);

    /// Checks that the database is writable.
    ///
    /// # Errors
    /// It is not.
    fn probe(&mut self) -> Result<()>;

    /// A second connection for long reads.
    ///
    /// # Errors
    /// It failed.
    fn reader(&self) -> Result<Box<dyn Database>>;

    /// Returns a portion of free space to the system; returns whether more is left.
    ///
    /// # Errors
    /// It failed.
    fn shrink(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn syncer(&self) -> Option<Syncer> {
        None
    }

    fn is_in_doubt(&self) -> bool {
        false
    }

    /// Resolves a commit in doubt; returns whether it succeeded.
    ///
    /// # Errors
    /// The outcome is still unknown.
    fn resolve(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// The time, milliseconds since 1970: the database's clock if several machines use it.
    ///
    /// # Errors
    /// The database did not answer.
    fn now_ms(&mut self, own_ms: i64) -> Result<i64> {
        Ok(own_ms)
    }

    fn node(&self) -> Option<&str> {
        None
    }

    /// The suffix of a SELECT that skips rows locked by other transactions.
    fn skipping_locked(&self) -> &'static str {
        ""
    }

    /// The suffix of a SELECT that locks its rows.
    fn locking(&self) -> &'static str {
        ""
    }

    /// Locks a serial key until the end of the transaction.
    ///
    /// # Errors
    /// The lock was not obtained.
    fn lock_serial(&mut self, _queue: &str, _serial: &str) -> Result<()> {
        Ok(())
    }

    /// Notifies other machines after the commit.
    ///
    /// # Errors
    /// It was not executed.
    fn notify(&mut self, _notice: &Notice) -> Result<()> {
        Ok(())
    }

    /// Listens for notices for the life of the process.
    ///
    /// # Errors
    /// No thread could be started.
    fn listen(&mut self, _hear: Box<dyn Fn(Notice) + Send>) -> std::io::Result<()> {
        Ok(())
    }
}

pub type Syncer = Box<dyn Fn() -> std::io::Result<()> + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    News,
    Cancel(i64),
}

impl dyn Database + '_ {
    pub(super) fn all<T>(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&dyn Row) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut rows = Vec::new();
        self.query(statement, values, &mut |row| {
            rows.push(read(row)?);
            Ok(())
        })?;
        Ok(rows)
    }

    pub(super) fn first<T>(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
        mut read: impl FnMut(&dyn Row) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut first = None;
        self.query(statement, values, &mut |row| {
            if first.is_none() {
                first = Some(read(row)?);
            }
            Ok(())
        })?;
        Ok(first)
    }
}

pub(super) trait Present: Row {
    fn number(&self, column: usize) -> Result<i64> {
        self.int(column).map(Option::unwrap_or_default)
    }

    fn count(&self, column: usize) -> Result<u32> {
        self.number(column)
            .map(|number| u32::try_from(number.max(0)).unwrap_or(u32::MAX))
    }

    fn word(&self, column: usize) -> Result<String> {
        self.text(column).map(Option::unwrap_or_default)
    }

    fn bytes(&self, column: usize) -> Result<Vec<u8>> {
        self.blob(column).map(Option::unwrap_or_default)
    }
}

impl<R: Row + ?Sized> Present for R {}

impl SqlError {
    pub fn new(trouble: Trouble, message: impl Into<String>) -> SqlError {
        let message = message.into();
        SqlError { trouble, message }
    }

    /// A failure of the whole database.
    pub fn of_database(cause: impl fmt::Display) -> SqlError {
        SqlError::new(Trouble::Database, cause.to_string())
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Value::Int(number.into())
    }
}

impl From<super::State> for Value<'_> {
    fn from(state: super::State) -> Self {
        Value::Int(state as i64)
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Value::Text(text)
    }
}

impl<'v> From<&'v String> for Value<'v> {
    fn from(text: &'v String) -> Self {
        Value::Text(text)
    }
}

impl<'v> From<&'v Vec<u8>> for Value<'v> {
    fn from(bytes: &'v Vec<u8>) -> Self {
        Value::Blob(bytes)
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(bytes: &'v [u8]) -> Self {
        Value::Blob(bytes)
    }
}

impl<'v, T: Into<Value<'v>>> From<Option<T>> for Value<'v> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

impl<'v> From<&'v Option<String>> for Value<'v> {
    fn from(text: &'v Option<String>) -> Self {
        text.as_ref().into()
    }
}
