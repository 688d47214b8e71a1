//! What the operations need of a database: statements with values, rows, transactions. SQLite and PostgreSQL understand the same
//! statements, so each operation is written once. Where they differ there is a method here.

use std::fmt;

#[derive(Debug, Clone, Copy)]
pub enum Value<'v> {
    Null,
    Int(i64),
    Text(&'v str),
    Blob(&'v [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// What was to be done: nothing else is concerned.
    Statement,
    /// Another transaction has held for too long what this needs: nothing else is concerned, and it may work later.
    Held,
    Again,
    /// The connection has ended, and with it the transaction: the same may work over another one.
    Cut,
    /// The database: nothing works until it is well.
    Database,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    pub trouble: Trouble,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, SqlError>;

pub trait Row {
    /// The number in a column.
    ///
    /// # Errors
    /// There is another kind of value.
    fn int(&self, column: usize) -> Result<Option<i64>>;
    /// The text in a column.
    ///
    /// # Errors
    /// There is another kind of value.
    fn text(&self, column: usize) -> Result<Option<String>>;
    /// The bytes in a column.
    ///
    /// # Errors
    /// There is another kind of value.
    fn blob(&self, column: usize) -> Result<Option<Vec<u8>>>;
}

pub trait Database: Send {
    fn name(&self) -> String;

    /// Executes a statement; says how many rows it changed.
    ///
    /// # Errors
    /// It was not executed.
    fn execute(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64>;

    /// Executes a statement, and gives each row.
    ///
    /// # Errors
    /// It was not executed, or a row was refused.
    fn query(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()>;

    /// Begins a transaction that writes.
    ///
    /// # Errors
    /// There is none.
    fn begin(&mut self) -> Result<()>;

    /// Commits it.
    ///
    /// # Errors
    /// It was not committed, unless [`Database::is_in_doubt`].
    fn commit(&mut self) -> Result<()>;

    fn roll_back(&mut self);

    /// Sees whether it can be written to.
    ///
    /// # Errors
    /// It can't.
    fn probe(&mut self) -> Result<()>;

    /// Another connection, which looks at much while this one works.
    ///
    /// # Errors
    /// There is none.
    fn reader(&self) -> Result<Box<dyn Database>>;

    /// Gives the system back a part of what is free; says whether there is more.
    ///
    /// # Errors
    /// It could not be done.
    fn shrink(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn syncer(&self) -> Option<Syncer> {
        None
    }

    fn is_in_doubt(&self) -> bool {
        false
    }

    /// Finds out; says whether it was.
    ///
    /// # Errors
    /// It can't be found out yet.
    fn resolve(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// The time, milliseconds since 1970: of the database's clock, where several machines use it.
    ///
    /// # Errors
    /// It does not say.
    fn now_ms(&mut self, own_ms: i64) -> Result<i64> {
        Ok(own_ms)
    }

    fn node(&self) -> Option<&str> {
        None
    }

    /// What is added to a SELECT so that it takes no row that another transaction has.
    fn skipping_locked(&self) -> &'static str {
        ""
    }

    /// What is added to a SELECT so that no other transaction changes its rows.
    fn locking(&self) -> &'static str {
        ""
    }

    /// Lets no other transaction look at this serial key until the end of this one.
    ///
    /// # Errors
    /// It could not be waited for.
    fn lock_serial(&mut self, _queue: &str, _serial: &str) -> Result<()> {
        Ok(())
    }

    /// Tells other machines, once this is committed.
    ///
    /// # Errors
    /// It was not executed.
    fn notify(&mut self, _notice: &Notice) -> Result<()> {
        Ok(())
    }

    /// Has what other machines tell heard, for as long as the process lives.
    ///
    /// # Errors
    /// There can be no thread.
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

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SqlError {}

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
