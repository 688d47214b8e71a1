//! Connects in the clear or with TLS, in libpq's order.

use crate::session::{SILENCE, of_server, silent};
use crate::tls;
use forkyard_config::{Encryption, PostgresqlServer, SslMode};
use forkyard_jobs::store::sql::{SqlError, Trouble};
use postgres_openssl::{MakeTlsConnector, TlsStream};
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode as Way};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

/// The time limit of a connection, and of unacknowledged bytes.
const CONNECT: Duration = Duration::from_secs(5);
const UNACKNOWLEDGED: Duration = Duration::from_secs(15);
const KEEPALIVE: Duration = Duration::from_secs(10);

pub(crate) type Link = Connection<Socket, TlsStream<Socket>>;

#[derive(Clone)]
pub(crate) struct Server {
    config: Config,
    encryption: Encryption,
}

struct ConnectFailure {
    error: SqlError,
    is_about_encryption: bool,
}

impl Server {
    pub(crate) fn new(server: &PostgresqlServer) -> Result<Server, Error> {
        let mut config: Config = server.url.parse()?;
        config
            .application_name("forkyard-jobs")
            .connect_timeout(CONNECT)
            .tcp_user_timeout(UNACKNOWLEDGED)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE);
        // The name that must be in the server's certificate.
        if config.get_hosts().is_empty() {
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        let mut encryption = server.encryption.clone();
        let is_local = |host: &Host| matches!(host, Host::Unix(_));
        if config.get_hosts().iter().all(is_local) {
            encryption.mode = SslMode::Disable;
        }
        Ok(Server { config, encryption })
    }

    pub(crate) fn name(&self) -> String {
        let hosts: Vec<String> = (self.config.get_hosts().iter())
            .map(|host| match host {
                Host::Tcp(name) => name.clone(),
                Host::Unix(path) => path.display().to_string(),
            })
            .collect();
        let database = self.config.get_dbname().unwrap_or_default();
        format!("database {database} of PostgreSQL at {}", hosts.join(", "))
    }

    /// Connects. The files are read each time, so that a renewed certificate is used.
    pub(crate) async fn connect(&self) -> Result<(Client, Link), SqlError> {
        let tls = tls::connector(&self.encryption).map_err(|error| SqlError {
            trouble: Trouble::Database,
            message: error.to_string(),
        })?;
        let (first, second) = match self.encryption.mode {
            SslMode::Disable => (Way::Disable, None),
            SslMode::Allow => (Way::Disable, Some(Way::Require)),
            SslMode::Prefer => (Way::Prefer, Some(Way::Disable)),
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => (Way::Require, None),
        };
        let failure = match (self.attempt(first, tls.clone()).await, second) {
            (Err(failure), Some(second)) if failure.is_about_encryption => {
                match self.attempt(second, tls).await {
                    Ok(connected) => return Ok(connected),
                    // The error of the preferred way does not concern the other.
                    Err(ConnectFailure { error, .. }) => SqlError {
                        message: format!("{}; and then: {}", failure.error.message, error.message),
                        ..error
                    },
                }
            }
            (Err(failure), _) => failure.error,
            (Ok(connected), _) => return Ok(connected),
        };
        Err(failure)
    }

    async fn attempt(&self, way: Way, tls: MakeTlsConnector) -> Result<(Client, Link), ConnectFailure> {
        let mut config = self.config.clone();
        config.ssl_mode(way);
        match timeout(SILENCE, config.connect(tls)).await {
            Ok(connected) => connected.map_err(|error| ConnectFailure {
                is_about_encryption: tls::handshake_failure(&error).is_some()
                    || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION),
                error: of_server(&error),
            }),
            Err(_) => Err(ConnectFailure {
                error: silent(),
                is_about_encryption: false,
            }),
        }
    }
}
