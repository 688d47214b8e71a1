//! What the master tells a reporter.

use crate::config::{AccessLog, Limits, Pool, ProcessManager};
use crate::sys::identity::Identity;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Descriptors that come with the message: where to listen, the pool's listening socket, the scoreboard for reading,
/// the channel for log lines; for a 503 responder of a pool with an access log, where workers find that.
pub const DESCRIPTORS: usize = 4;

/// What a 503 responder answers whatever is asked, but for the status and ping pages. After the brief, the channel brings
/// another when there is a later failure to be told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The failure's id.
    pub id: String,
    /// When the next try is made, in nanoseconds of the monotonic clock ([`crate::tick::Tick`]).
    pub retry_at_ns: u64,
    /// A page with the report; `None`: only the operator may see it.
    pub page: Option<String>,
}

/// Status page of an address that was given no path.
const DEFAULT_STATUS_PATH: &str = "/";

/// Everything that a reporter has to know of its pool. No setting of the application is among it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// The process' title.
    pub title: String,
    /// The master's name, which the process has, too.
    pub process_name: String,
    /// What PHP says of itself to clients (`X-Powered-By`).
    #[serde(default)]
    pub powered_by: Option<String>,
    /// The pool's name.
    pub pool: String,
    /// What kind of pool it is.
    pub pm: ProcessManager,
    /// URI of the status page.
    pub status_path: Option<String>,
    /// URI of the ping page.
    pub ping_path: Option<String>,
    /// Its text.
    pub ping_response: String,
    /// Peers that may connect over TCP; empty: any.
    pub allowed_clients: Vec<IpAddr>,
    /// Limits on what a client may send.
    pub limits: Limits,
    /// How long an idle kept connection stays open.
    pub keepalive_timeout: Duration,
    /// The user that the reporter becomes; `None`: the master's.
    pub identity: Option<Identity>,
    /// The page has the most memory of a request ([`crate::config::Application::has_memory_peak`]).
    #[serde(default)]
    pub has_memory_peak: bool,
    /// When the generation began, seconds since 1970.
    pub started: u64,
    /// Slots of the scoreboard.
    pub slots: u32,
    /// Soft and hard limit on descriptors as the master was started with.
    pub descriptor_limit: Option<(u64, u64)>,
    /// It stands in for the pool's workers, at the pool's own address.
    pub refusal: Option<Refusal>,
    /// The access log in which what it answers is written down.
    pub access: Option<AccessLog>,
    /// Bytes of a line there.
    pub log_limit: usize,
}

impl Brief {
    /// What the reporter of a pool has to know.
    pub fn new(
        pool: &Pool,
        identity: Option<Identity>,
        started: u64,
        descriptor_limit: Option<(u64, u64)>,
    ) -> Brief {
        let status_path = pool.status_path.as_deref().unwrap_or(DEFAULT_STATUS_PATH);
        let listen = pool.status_listen.as_deref().unwrap_or(&pool.listen);
        Brief {
            title: title(&pool.title, &pool.name),
            process_name: crate::sys::title::name(),
            powered_by: None,
            pool: pool.name.clone(),
            pm: pool.pm,
            status_path: Some(status_path.to_owned()),
            ping_path: pool.ping_path.clone(),
            ping_response: pool.ping_response.clone(),
            allowed_clients: listen.allowed_clients.clone(),
            limits: pool.limits,
            keepalive_timeout: pool.keepalive_timeout,
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

    /// What a process has to know that stands in for the pool's workers.
    pub fn answering_503(self, pool: &Pool, refusal: Refusal, log_limit: usize) -> Brief {
        Brief {
            title: match pool.title.as_str() {
                "php-fpm" => format!("php-fpm: pool {}", pool.name),
                frontend => format!("{frontend}: 503 responder {}", pool.name),
            },
            status_path: pool.status_path.clone(),
            allowed_clients: pool.listen.allowed_clients.clone(),
            refusal: Some(refusal),
            access: pool.access.clone(),
            log_limit,
            ..self
        }
    }
}

/// A reporter's title; in php-fpm's name the one that its status pool has.
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
