//! The configuration that the master sends to a reporter.

use forkyard_config::{AccessLog, Limits, Pool, ProcessManager};
use forkyard_sys::identity::Identity;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Descriptors sent with the message: the status listener, the pool's listening socket, the read-only scoreboard, the
/// log channel. A 503 responder also receives the writable scoreboard, and the access log if the pool has one.
pub(crate) const DESCRIPTORS: usize = 4;

/// The failure that a 503 responder reports for every request except status and ping. The channel sends an update after
/// each later failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The failure's id.
    pub id: String,
    /// The time of the next retry, in nanoseconds of the monotonic clock ([`forkyard_base::tick::Tick`]).
    pub retry_at_ns: u64,
    /// The HTML error report; `None` if only the operator may see it.
    pub page: Option<String>,
}

/// The status page's path if none is configured.
const DEFAULT_STATUS_PATH: &str = "/";

/// A reporter's settings. They contain no setting of the application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// The process' title.
    pub title: String,
    /// The master's process name, which the reporter shares.
    pub process_name: String,
    /// PHP's `X-Powered-By` header.
    #[serde(default)]
    pub powered_by: Option<String>,
    /// The pool's name.
    pub pool: String,
    /// The pool's process manager.
    pub pm: ProcessManager,
    /// URI of the status page.
    pub status_path: Option<String>,
    /// URI of the ping page.
    pub ping_path: Option<String>,
    /// The ping page's text.
    pub ping_response: String,
    /// Peers that may connect over TCP; empty allows any.
    pub allowed_clients: Vec<IpAddr>,
    /// Limits on client input.
    pub limits: Limits,
    /// The timeout of an idle keep-alive connection.
    pub keepalive_timeout: Duration,
    /// The reporter's user; `None` keeps the master's.
    pub identity: Option<Identity>,
    /// Whether the page shows peak memory ([`forkyard_config::Application::has_memory_peak`]).
    #[serde(default)]
    pub has_memory_peak: bool,
    /// Start of the generation, in seconds since 1970.
    pub started: u64,
    /// Number of scoreboard slots.
    pub slots: u32,
    /// The master's initial soft and hard descriptor limits.
    pub descriptor_limit: Option<(u64, u64)>,
    /// Set for a 503 responder at the pool's own address.
    pub refusal: Option<Refusal>,
    /// The access log of the responder's answers.
    pub access: Option<AccessLog>,
    /// The longest access log line, in bytes.
    pub log_limit: usize,
}

impl Brief {
    /// Returns the brief of a pool's reporter.
    pub fn new(
        pool: &Pool,
        identity: Option<Identity>,
        started: u64,
        descriptor_limit: Option<(u64, u64)>,
    ) -> Brief {
        let status_path = pool.pages.status_path.as_deref().unwrap_or(DEFAULT_STATUS_PATH);
        let listen = pool.pages.status_listen.as_deref().unwrap_or(&pool.listen);
        Brief {
            title: title(&pool.title, &pool.name),
            process_name: forkyard_sys::title::name(),
            powered_by: None,
            pool: pool.name.clone(),
            pm: pool.pm,
            status_path: Some(status_path.to_owned()),
            ping_path: pool.pages.ping_path.clone(),
            ping_response: pool.pages.ping_response.clone(),
            allowed_clients: listen.allowed_clients.clone(),
            limits: pool.serving.limits,
            keepalive_timeout: pool.serving.keepalive_timeout,
            identity,
            has_memory_peak: pool.application.has_memory_peak(),
            started,
            slots: pool.pm.max_children(),
            descriptor_limit,
            refusal: None,
            access: None,
            log_limit: 0,
        }
    }

    /// Returns the brief of a pool's 503 responder.
    pub fn answering_503(self, pool: &Pool, refusal: Refusal, log_limit: usize) -> Brief {
        Brief {
            title: match pool.title.as_str() {
                "php-fpm" => format!("php-fpm: pool {}", pool.name),
                frontend => format!("{frontend}: 503 responder {}", pool.name),
            },
            status_path: pool.pages.status_path.clone(),
            allowed_clients: pool.listen.allowed_clients.clone(),
            refusal: Some(refusal),
            access: pool.logs.access.clone(),
            log_limit,
            ..self
        }
    }
}

/// Returns the process title; for php-fpm, the title of its status pool.
fn title(frontend: &str, pool: &str) -> String {
    match frontend {
        "php-fpm" => format!("php-fpm: pool {pool}_status"),
        frontend => format!("{frontend}: reporter {pool}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn titles_are_in_the_frontend_s_style() {
        assert_eq!(super::title("forkyard", "www"), "forkyard: reporter www");
        assert_eq!(super::title("php-fpm", "www"), "php-fpm: pool www_status");
    }
}
