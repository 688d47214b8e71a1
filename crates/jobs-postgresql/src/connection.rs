//! The working connection: statements, transactions, and commits in doubt.

use crate::server::Server;
use crate::session::{Session, of_server};
use crate::{listen, schema};
use forkyard_config::PostgresqlServer;
use forkyard_jobs::store::sql::{Database, Notice, Result, Row, SqlError, Trouble, Value};
use forkyard_jobs::store::{StoreError, tables};
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use tokio_postgres::Statement;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

const ADDED_TOGETHER: u32 = 20_000;

pub struct Postgresql {
    server: Server,
    node: String,
    session: Option<Session>,
    statements: HashMap<String, Statement>,
    backend: Arc<AtomicI32>,
    transaction: Option<i64>,
    doubtful: Option<i64>,
    is_own_time: bool,
}

impl Postgresql {
    /// Connects, and creates missing tables. `node`: this daemon's name among users of the database.
    ///
    /// # Errors
    /// The server can't be reached, or has tables of another version.
    pub fn open(server: &PostgresqlServer, node: &str) -> std::result::Result<Postgresql, StoreError> {
        let server = Server::new(server)
            .map_err(|error| StoreError::Database("the store's URL".to_owned(), of_server(&error)))?;
        let mut opened = Postgresql::on(server, node.to_owned());
        let name = opened.name();
        let failed = |error| StoreError::Database(name.clone(), error);
        let session = opened.connected().map_err(failed)?;
        match schema::prepare(session) {
            Ok(tables::VERSION) => Ok(opened),
            Ok(version) => Err(StoreError::Version(name, version)),
            Err(error) => Err(failed(error)),
        }
    }

    /// Not connected yet.
    fn on(server: Server, node: String) -> Postgresql {
        Postgresql {
            server,
            node,
            session: None,
            statements: HashMap::new(),
            backend: Arc::default(),
            transaction: None,
            doubtful: None,
            is_own_time: false,
        }
    }

    #[cfg(test)]
    pub(crate) fn with_own_time(mut self) -> Postgresql {
        self.is_own_time = true;
        self
    }

    fn connected(&mut self) -> Result<&Session> {
        let is_open = self.session.as_ref().is_some_and(|session| !session.is_over());
        if !is_open {
            self.close();
            // A lack of a second connection is no reason to try again at once.
            let unreached = |error| SqlError {
                trouble: Trouble::Database,
                ..error
            };
            let session = Session::connect(&self.server).map_err(unreached)?;
            let backend = session.one("SELECT pg_backend_pid()", &[]).map_err(unreached)?;
            self.backend.store(backend.get(0), Ordering::Relaxed);
            self.session = Some(session);
        }
        self.session.as_ref().ok_or_else(ended)
    }

    fn close(&mut self) {
        self.session = None;
        self.statements.clear();
        self.transaction = None;
    }

    fn prepared(&mut self, statement: &str) -> Result<(&Session, Statement)> {
        let known = self.statements.get(statement).cloned();
        let session = self.session.as_ref().ok_or_else(ended)?;
        let prepared = match known {
            Some(known) => known,
            None => {
                // PostgreSQL numbers its parameters with `$`.
                let prepared = session.prepare(&statement.replace('?', "$"))?;
                self.statements.insert(statement.to_owned(), prepared.clone());
                prepared
            }
        };
        Ok((session, prepared))
    }

    fn number(&mut self, statement: &str) -> Result<Option<i64>> {
        let mut number = None;
        self.query(statement, &[], &mut |row| {
            number = row.int(0)?;
            Ok(())
        })?;
        Ok(number)
    }

    fn plain(&mut self, statement: &str) -> Result<()> {
        self.connected()?.batch(statement)
    }
}

impl Database for Postgresql {
    fn name(&self) -> String {
        self.server.name()
    }

    fn execute(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64> {
        let values: Vec<Parameter<'_>> = values.iter().copied().map(Parameter).collect();
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let (session, statement) = self.prepared(statement)?;
        session.execute(&statement, &values)
    }

    fn query(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let values: Vec<Parameter<'_>> = values.iter().copied().map(Parameter).collect();
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        if self.transaction.is_none() {
            self.connected()?;
        }
        let (session, statement) = self.prepared(statement)?;
        let rows = session.query(&statement, &values)?;
        rows.into_iter().try_for_each(|row| each(&QueryRow(row)))
    }

    fn begin(&mut self) -> Result<()> {
        self.plain("BEGIN")?;
        // From here on no other connection replaces this one.
        self.transaction = Some(0);
        self.transaction = self.number("SELECT txid_current()")?;
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let transaction = self.transaction.take();
        let session = self.session.as_ref().ok_or_else(ended)?;
        let done = session.batch("COMMIT");
        if done.is_err() {
            // The server may have committed it before the connection ended.
            self.doubtful = transaction;
            self.close();
        }
        done
    }

    fn roll_back(&mut self) {
        self.transaction = None;
        let rolled_back = (self.session.as_ref()).is_some_and(|session| session.batch("ROLLBACK").is_ok());
        if !rolled_back {
            self.close();
        }
    }

    fn probe(&mut self) -> Result<()> {
        self.plain("SELECT 1")
    }

    fn reader(&self) -> Result<Box<dyn Database>> {
        // It connects at the first request.
        let mut reader = Postgresql::on(self.server.clone(), self.node.clone());
        reader.is_own_time = self.is_own_time;
        Ok(Box::new(reader))
    }

    fn shrink(&mut self) -> Result<bool> {
        // Adds up the counters. PostgreSQL manages space itself.
        let add_up = format!(
            "WITH gone AS (DELETE FROM tally WHERE ctid = ANY (ARRAY(SELECT ctid FROM tally LIMIT {ADDED_TOGETHER} \
             FOR UPDATE SKIP LOCKED)) RETURNING queue, state, number) \
             INSERT INTO tally SELECT queue, state, sum(number)::bigint FROM gone GROUP BY queue, state HAVING sum(number) <> 0"
        );
        self.execute(&add_up, &[])?;
        Ok(false)
    }

    fn is_in_doubt(&self) -> bool {
        self.doubtful.is_some()
    }

    fn resolve(&mut self) -> Result<bool> {
        let Some(doubtful) = self.doubtful else {
            return Ok(false);
        };
        let row = self.connected()?.one("SELECT txid_status($1)", &[&doubtful])?;
        let status: Option<String> = row.get(0);
        let was_committed = match status.as_deref() {
            Some("committed") => true,
            Some("aborted") => false,
            Some(_) => {
                let message = "the server still works on the last transaction";
                return Err(SqlError::new(Trouble::Again, message));
            }
            None => {
                log::error!("jobs: whether the last transaction was committed is not known any more");
                false
            }
        };
        self.doubtful = None;
        Ok(was_committed)
    }

    fn now_ms(&mut self, own_ms: i64) -> Result<i64> {
        if self.is_own_time {
            return Ok(own_ms);
        }
        let time = self.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")?;
        time.ok_or_else(ended)
    }

    fn node(&self) -> Option<&str> {
        Some(&self.node)
    }

    fn skipping_locked(&self) -> &'static str {
        " FOR UPDATE SKIP LOCKED"
    }

    fn locking(&self) -> &'static str {
        " FOR UPDATE"
    }

    fn lock_serial(&mut self, queue: &str, serial: &str) -> Result<()> {
        let lock = "SELECT pg_advisory_xact_lock(hashtextextended(?1 || '/' || ?2, 0))";
        self.query(lock, &[queue.into(), serial.into()], &mut |_| Ok(()))
    }

    fn notify(&mut self, notice: &Notice) -> Result<()> {
        let word = listen::word(notice);
        let notify = "SELECT pg_notify('forkyard_jobs', ?1)";
        self.query(notify, &[(&word).into()], &mut |_| Ok(()))
    }

    fn listen(&mut self, hear: Box<dyn Fn(Notice) + Send>) -> std::io::Result<()> {
        listen::start(self.server.clone(), Arc::clone(&self.backend), hear)
    }
}

fn ended() -> SqlError {
    SqlError::new(Trouble::Cut, "the connection has ended")
}

struct QueryRow(tokio_postgres::Row);

impl QueryRow {
    fn value<'r, T: FromSql<'r>>(&'r self, column: usize) -> Result<T> {
        let value = self.0.try_get(column);
        value.map_err(|error| SqlError::new(Trouble::Statement, error.to_string()))
    }
}

impl Row for QueryRow {
    fn int(&self, column: usize) -> Result<Option<i64>> {
        self.value(column)
    }

    fn text(&self, column: usize) -> Result<Option<String>> {
        self.value(column)
    }

    fn blob(&self, column: usize) -> Result<Option<Vec<u8>>> {
        self.value(column)
    }
}

#[derive(Debug)]
struct Parameter<'v>(Value<'v>);

impl ToSql for Parameter<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self.0 {
            Value::Null => Ok(IsNull::Yes),
            Value::Int(number) if *kind == Type::INT4 => i32::try_from(number)?.to_sql(kind, out),
            Value::Int(number) => number.to_sql(kind, out),
            Value::Text(text) if text.contains('\0') => text.replace('\0', "\u{fffd}").to_sql(kind, out),
            Value::Text(text) => text.to_sql(kind, out),
            Value::Blob(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}
