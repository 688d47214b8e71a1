//! The connection that works: statements, transactions, and what becomes of one whose end is not known.

use crate::{listen, schema};
use forkyard_jobs::store::sql::{Database, Notice, Result, Row, SqlError, Trouble, Value};
use forkyard_jobs::store::{StoreError, tables};
use postgres::error::SqlState;
use postgres::types::private::BytesMut;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls, Statement};
use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

/// How long the server may take to answer a new connection, and may leave bytes unacknowledged.
const CONNECT: Duration = Duration::from_secs(5);
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);
const KEEPALIVE: Duration = Duration::from_secs(10);

/// What every connection has set. A transaction of an application may have a key that a job is pushed with here: it is not waited
/// for without end. What a machine that is gone has locked is let go of.
const SESSION: &str = "SET search_path = forkyard, pg_catalog; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '30s'; SET default_transaction_isolation = 'read committed'; \
     SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// A database of a PostgreSQL server.
pub struct Postgresql {
    config: Config,
    node: String,
    client: Option<Client>,
    statements: HashMap<String, Statement>,
    /// The server's process of this connection: what it tells others is not news here.
    backend: Arc<AtomicI32>,
    /// The transaction that is under way.
    transaction: Option<i64>,
    /// The one of which it is not known whether it was committed.
    doubtful: Option<i64>,
    /// The time is this machine's, and not the server's: for tests, which set it.
    is_own_time: bool,
}

impl Postgresql {
    /// Connects, and makes the tables where there are none. `node`: this daemon's name among those that use the database.
    ///
    /// # Errors
    /// It can't be reached, or has tables of another version.
    pub fn open(url: &str, node: &str) -> std::result::Result<Postgresql, StoreError> {
        let mut config: Config = url
            .parse()
            .map_err(|error| StoreError::Database("the store's URL".to_owned(), of_server(&error)))?;
        config
            .application_name("forkyard-jobs")
            .connect_timeout(CONNECT)
            .tcp_user_timeout(UNACKNOWLEDGED)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE);
        let mut opened = Postgresql {
            config,
            node: node.to_owned(),
            client: None,
            statements: HashMap::new(),
            backend: Arc::default(),
            transaction: None,
            doubtful: None,
            is_own_time: false,
        };
        let name = opened.name();
        let failed = |error| StoreError::Database(name.clone(), error);
        let client = opened.connected().map_err(failed)?;
        match schema::prepare(client) {
            Ok(tables::VERSION) => Ok(opened),
            Ok(version) => Err(StoreError::Version(name, version)),
            Err(error) => Err(failed(of_server(&error))),
        }
    }

    /// Lets the time be the one that is said.
    #[cfg(test)]
    pub(crate) fn with_own_time(mut self) -> Postgresql {
        self.is_own_time = true;
        self
    }

    fn connected(&mut self) -> Result<&mut Client> {
        let is_open = self.client.as_ref().is_some_and(|client| !client.is_closed());
        if !is_open {
            self.close();
            // That there is no other connection is no reason to try at once whether there is one.
            let unreached = |error| SqlError {
                trouble: Trouble::Database,
                ..of_server(&error)
            };
            let mut client = connect(&self.config).map_err(unreached)?;
            let backend = client
                .query_one("SELECT pg_backend_pid()", &[])
                .map_err(unreached)?;
            self.backend.store(backend.get(0), Ordering::Relaxed);
            self.client = Some(client);
        }
        self.client.as_mut().ok_or_else(ended)
    }

    fn close(&mut self) {
        self.client = None;
        self.statements.clear();
        self.transaction = None;
    }

    /// The client, with a statement that it has prepared.
    fn prepared(&mut self, statement: &str) -> Result<(&mut Client, Statement)> {
        let known = self.statements.get(statement).cloned();
        let client = self.client.as_mut().ok_or_else(ended)?;
        let prepared = match known {
            Some(known) => known,
            None => {
                // Numbers of values are written in another way.
                let prepared = client
                    .prepare(&statement.replace('?', "$"))
                    .map_err(|error| of_server(&error))?;
                self.statements.insert(statement.to_owned(), prepared.clone());
                prepared
            }
        };
        Ok((client, prepared))
    }

    fn plain(&mut self, statement: &str) -> Result<()> {
        let client = self.connected()?;
        client.batch_execute(statement).map_err(|error| of_server(&error))
    }
}

/// A connection as every one has to be.
pub(crate) fn connect(config: &Config) -> std::result::Result<Client, postgres::Error> {
    let mut client = config.connect(NoTls)?;
    client.batch_execute(SESSION)?;
    Ok(client)
}

impl Database for Postgresql {
    fn name(&self) -> String {
        // Without the password.
        let hosts: Vec<String> = (self.config.get_hosts().iter())
            .map(|host| match host {
                postgres::config::Host::Tcp(name) => name.clone(),
                postgres::config::Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let database = self.config.get_dbname().unwrap_or_default();
        format!("database {database} of PostgreSQL at {}", hosts.join(", "))
    }

    fn execute(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64> {
        let values: Vec<Parameter<'_>> = values.iter().map(|value| Parameter(*value)).collect();
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let (client, statement) = self.prepared(statement)?;
        client
            .execute(&statement, &values)
            .map_err(|error| of_server(&error))
    }

    fn query(
        &mut self,
        statement: &str,
        values: &[Value<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<()>,
    ) -> Result<()> {
        let values: Vec<Parameter<'_>> = values.iter().map(|value| Parameter(*value)).collect();
        if self.transaction.is_none() {
            self.connected()?;
        }
        let (client, statement) = self.prepared(statement)?;
        let mut rows = client
            .query_raw(&statement, &values)
            .map_err(|error| of_server(&error))?;
        use postgres::fallible_iterator::FallibleIterator;
        while let Some(row) = rows.next().map_err(|error| of_server(&error))? {
            each(&Found(row))?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        self.plain("BEGIN")?;
        let (client, number) = self.prepared("SELECT txid_current()")?;
        let row = client
            .query_one(&number, &[])
            .map_err(|error| of_server(&error))?;
        self.transaction = Some(row.get(0));
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let transaction = self.transaction.take();
        let client = self.client.as_mut().ok_or_else(ended)?;
        let done = client.batch_execute("COMMIT").map_err(|error| of_server(&error));
        if done.is_err() {
            // The server may have committed it before the connection ended.
            self.doubtful = transaction;
            self.close();
        }
        done
    }

    fn roll_back(&mut self) {
        self.transaction = None;
        let rolled_back = self
            .client
            .as_mut()
            .is_some_and(|client| client.batch_execute("ROLLBACK").is_ok());
        if !rolled_back {
            self.close();
        }
    }

    fn probe(&mut self) -> Result<()> {
        self.plain("SELECT 1")
    }

    fn is_in_doubt(&self) -> bool {
        self.doubtful.is_some()
    }

    fn resolve(&mut self) -> Result<bool> {
        let Some(doubtful) = self.doubtful else {
            return Ok(false);
        };
        let client = self.connected()?;
        let row = client
            .query_one("SELECT txid_status($1)", &[&doubtful])
            .map_err(|error| of_server(&error))?;
        let status: Option<String> = row.get(0);
        let was_committed = match status.as_deref() {
            Some("committed") => true,
            Some("aborted") => false,
            Some(_) => {
                return Err(SqlError {
                    trouble: Trouble::Again,
                    message: "the server still works on the last transaction".to_owned(),
                });
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
        let (client, time) =
            self.prepared("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")?;
        let row = client.query_one(&time, &[]).map_err(|error| of_server(&error))?;
        Ok(row.get(0))
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
        listen::start(self.config.clone(), Arc::clone(&self.backend), hear)
    }
}

fn ended() -> SqlError {
    SqlError {
        trouble: Trouble::Cut,
        message: "the connection has ended".to_owned(),
    }
}

/// An error of the server, or of the connection to it.
fn of_server(error: &postgres::Error) -> SqlError {
    let trouble = match error.code() {
        Some(code)
            if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED =>
        {
            Trouble::Again
        }
        Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => Trouble::Held,
        // An operator or the server ended the connection.
        Some(code) if *code == SqlState::ADMIN_SHUTDOWN || *code == SqlState::CRASH_SHUTDOWN => Trouble::Cut,
        // Connection exceptions, resources that are short, what an operator or the system does, internal errors; it is read-only.
        Some(code) if ["08", "53", "57", "58", "XX", "25"].contains(&&code.code()[..2]) => Trouble::Database,
        Some(_) => Trouble::Statement,
        // It is the connection's.
        None => Trouble::Cut,
    };
    let message = match error.as_db_error() {
        Some(of_server) => of_server.message().to_owned(),
        None => match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    };
    SqlError { trouble, message }
}

struct Found(postgres::Row);

impl Found {
    fn refused(error: &postgres::Error) -> SqlError {
        SqlError {
            trouble: Trouble::Statement,
            message: error.to_string(),
        }
    }
}

impl Row for Found {
    fn int(&self, column: usize) -> Result<Option<i64>> {
        self.0.try_get(column).map_err(|error| Found::refused(&error))
    }

    fn text(&self, column: usize) -> Result<Option<String>> {
        self.0.try_get(column).map_err(|error| Found::refused(&error))
    }

    fn blob(&self, column: usize) -> Result<Option<Vec<u8>>> {
        self.0.try_get(column).map_err(|error| Found::refused(&error))
    }
}

/// A value, as the server wants it.
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
            // A zero can't be stored.
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
