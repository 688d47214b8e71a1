//! A connection with a time limit for each answer, because a silent network or a hanging server ends no connection.

use crate::server::Server;
use crate::tls;
use forkyard_jobs::store::sql::{SqlError, Trouble};
use std::cell::Cell;
use std::error::Error as _;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

/// The time limit of an answer. It is longer than a statement's wait for a lock; a machine that is cut off waits at
/// least half as long again before it ends its jobs.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);

/// Settings of each connection. An application's transaction may hold a job's key; the wait for it is limited. Locks of
/// a dead machine are released.
const SESSION: &str = "SET search_path = forkyard, pg_catalog; SET lock_timeout = '5s'; \
     SET idle_in_transaction_session_timeout = '30s'; SET default_transaction_isolation = 'read committed'; \
     SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

pub(crate) struct Session {
    client: Client,
    runtime: Runtime,
    is_silent: Cell<bool>,
}

impl Session {
    pub(crate) fn connect(server: &Server) -> Result<Session, SqlError> {
        let runtime = runtime().map_err(SqlError::of_database)?;
        let (client, connection) = runtime.block_on(server.connect())?;
        runtime.spawn(async move { _ = connection.await });
        let session = Session {
            client,
            runtime,
            is_silent: Cell::new(false),
        };
        session.batch(SESSION)?;
        Ok(session)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_silent.get() || self.client.is_closed()
    }

    fn wait<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, SqlError> {
        if self.is_silent.get() {
            return Err(silent());
        }
        let answer = self.runtime.block_on(async { timeout(SILENCE, asked).await });
        self.is_silent.set(answer.is_err());
        told(answer)
    }

    pub(crate) fn batch(&self, statements: &str) -> Result<(), SqlError> {
        self.wait(self.client.batch_execute(statements))
    }

    pub(crate) fn prepare(&self, statement: &str) -> Result<Statement, SqlError> {
        self.wait(self.client.prepare(statement))
    }

    pub(crate) fn execute(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<u64, SqlError> {
        self.wait(self.client.execute(statement, values))
    }

    pub(crate) fn query(
        &self,
        statement: &Statement,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, SqlError> {
        self.wait(self.client.query(statement, values))
    }

    pub(crate) fn one(&self, statement: &str, values: &[&(dyn ToSql + Sync)]) -> Result<Row, SqlError> {
        self.wait(self.client.query_one(statement, values))
    }
}

pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

pub(crate) async fn in_time<T>(asked: impl Future<Output = Result<T, Error>>) -> Result<T, SqlError> {
    told(timeout(SILENCE, asked).await)
}

fn told<T>(answer: Result<Result<T, Error>, Elapsed>) -> Result<T, SqlError> {
    match answer {
        Ok(answer) => answer.map_err(|error| of_server(&error)),
        Err(_) => Err(silent()),
    }
}

pub(crate) fn silent() -> SqlError {
    let limit = SILENCE.as_secs();
    SqlError::new(
        Trouble::Cut,
        format!("the server did not answer within {limit} s"),
    )
}

pub(crate) fn of_server(error: &Error) -> SqlError {
    let trouble = match error.code() {
        Some(code)
            if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED =>
        {
            Trouble::Again
        }
        Some(code) if *code == SqlState::LOCK_NOT_AVAILABLE => Trouble::Held,
        // An operator or the server ended the connection.
        Some(code) if *code == SqlState::ADMIN_SHUTDOWN || *code == SqlState::CRASH_SHUTDOWN => Trouble::Cut,
        // Connection errors, missing resources, intervention by operator or system, internal errors, read-only mode.
        Some(code) if ["08", "53", "57", "58", "XX", "25"].contains(&&code.code()[..2]) => Trouble::Database,
        Some(_) => Trouble::Statement,
        None => Trouble::Cut,
    };
    let message = match error.as_db_error() {
        Some(of_server) => of_server.message().to_owned(),
        None => match (tls::handshake_failure(error), error.source()) {
            (Some(failure), _) => failure,
            (None, Some(source)) => format!("{error}: {source}"),
            (None, None) => error.to_string(),
        },
    };
    SqlError { trouble, message }
}
