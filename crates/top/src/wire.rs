//! The daemon's answers, as far as this program shows them. A newer or older daemon may leave out parts.

use crate::histogram::Buckets;
use forkyard_protocol::control::{JobsStatus, PoolStatus};
use forkyard_protocol::last_reload::LastReload;
use forkyard_protocol::skipped::Skipped;
use serde::{Deserialize, Deserializer, Serialize};

/// The answer to `status`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sample {
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) config: String,
    pub(crate) pools: Vec<PoolSample>,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) last_reload: Option<LastReload>,
    pub(crate) jobs: Option<Box<JobsStatus>>,
}

/// A pool's status with its numbers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PoolSample {
    /// Absent from a daemon that does not count them.
    #[serde(
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) numbers: Option<Numbers>,
    #[serde(flatten)]
    pub(crate) status: PoolStatus,
}

/// Sums since the pool's start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Numbers {
    pub(crate) busy_seconds: f64,
    pub(crate) saturated_seconds: f64,
    /// How long connections waited for a worker.
    pub(crate) queue_seconds: f64,
    pub(crate) requests: Classes,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) aborted: u64,
    pub(crate) timed_out: u64,
    /// Times of requests, in microseconds.
    pub(crate) run: Spread,
    /// Times before requests had a worker, in microseconds.
    pub(crate) wait: Spread,
}

/// Requests by the class of their status.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Classes {
    #[serde(rename = "1xx")]
    pub(crate) informational: u64,
    #[serde(rename = "2xx")]
    pub(crate) success: u64,
    #[serde(rename = "3xx")]
    pub(crate) redirection: u64,
    #[serde(rename = "4xx")]
    pub(crate) client_error: u64,
    #[serde(rename = "5xx")]
    pub(crate) server_error: u64,
    pub(crate) none: u64,
}

impl Classes {
    pub(crate) fn sum(self) -> u64 {
        let Classes {
            informational,
            success,
            redirection,
            client_error,
            server_error,
            none,
        } = self;
        [
            informational,
            success,
            redirection,
            client_error,
            server_error,
            none,
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Spread {
    pub(crate) buckets: Buckets,
}

/// A route of a pool: sums since the pool's start.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Route {
    pub(crate) route: String,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) busy_seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) blocked_seconds: f64,
    /// In bytes.
    pub(crate) memory_growth: f64,
    /// In seconds, since the pool's start.
    pub(crate) p50: Option<f64>,
    pub(crate) p95: Option<f64>,
}

/// The answer to `routes`.
#[derive(Debug, Deserialize)]
pub(crate) struct Routes {
    pub(crate) routes: Vec<Route>,
}

/// A worker's death during a request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Crash {
    /// The report's id.
    pub(crate) id: String,
    /// Seconds since 1970.
    pub(crate) time: u64,
    pub(crate) pool: String,
    pub(crate) cause: String,
    pub(crate) request: String,
    /// How often this happened.
    pub(crate) deaths: u64,
}

/// The answer to `crashes`.
#[derive(Debug, Deserialize)]
pub(crate) struct Crashes {
    pub(crate) crashes: Vec<Crash>,
}

/// Reads a value, or `None` if it has an unknown form.
fn lenient<'de, D: Deserializer<'de>, T: for<'a> Deserialize<'a>>(from: D) -> Result<Option<T>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_if_they_are_there() {
        let pool = |numbers: &str| {
            let text = format!(r#"{{"name":"www","listen":"/x","queue":null,"generations":[]{numbers}}}"#);
            serde_json::from_str::<PoolSample>(&text).unwrap()
        };
        assert!(pool("").numbers.is_none());
        assert!(pool(r#","numbers":7"#).numbers.is_none());
        let known = r#","numbers":{"busy_seconds":1.5,"requests":{"5xx":2,"none":1},"new":{},
            "run":{"count":3,"sum":0.5,"buckets":[[3,2],[80,1]]}}"#;
        let known = pool(known);
        assert_eq!(known.status.name, "www");
        let numbers = known.numbers.unwrap();
        assert_eq!((numbers.busy_seconds, numbers.requests.sum()), (1.5, 3));
        assert_eq!(numbers.run.buckets, Buckets(vec![(3, 2), (80, 1)]));
    }
}
