//! Settings of an application, valid by construction.

use forkyard_base::spread;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::time::Duration;

/// How instances are replaced by instances with new code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartMethod {
    /// All old instances retire at once; requests wait.
    Blocking,
    /// One by one; each new instance is up before an old one retires.
    Rolling,
    /// Rolling if there is a place for the first new instance, otherwise blocking.
    Fitting,
}

/// Settings of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The most instances; `None`: the pool's limit.
    pub max_per_app: Option<NonZeroU32>,
    /// Instances to keep; `max_per_app` takes precedence.
    pub min_instances: u32,
    /// An instance is replaced after this many requests; `None`: never.
    pub max_requests: Option<NonZeroU32>,
    /// The most to add to `max_requests`; the random part differs for each instance.
    #[serde(default)]
    pub max_requests_jitter: u32,
    /// An instance is stopped after this idle time; `None`: never.
    pub max_idle_time: Option<Duration>,
    /// Concurrent requests of an instance; `None`: no limit.
    pub concurrency: Option<NonZeroU32>,
    /// Starts another instance once all are busy, up to this number; `None`: only once all are full.
    #[serde(default)]
    pub spread: Option<NonZeroU32>,
    /// Whether requests wait for any instance, not in the private queue of the least busy.
    pub use_global_queue: bool,
    /// The most waiting requests; `None`: no limit.
    pub max_request_queue_size: Option<NonZeroU32>,
    /// How long an instance may take to start.
    pub start_timeout: Duration,
    /// How long sessions of a retiring instance may last; `None`: no limit.
    pub drain_timeout: Option<Duration>,
    /// How long an instance may take to stop before it is killed.
    pub stop_timeout: Duration,
    /// How long a request may last before its instance is killed; `None`: no limit.
    pub max_request_time: Option<Duration>,
    /// Bytes above which an instance is replaced; `None`: no limit.
    pub memory_limit: Option<u64>,
    /// How long out-of-band work may take.
    pub work_timeout: Duration,
    /// What restart files trigger.
    pub restart_method: RestartMethod,
    /// All instances use one program, which `max_requests` and `memory_limit` apply to.
    #[serde(default)]
    pub shares_program: bool,
    /// The owner, for shares of the pool. 0: unknown, or a single user owns all.
    #[serde(default)]
    pub user: u32,
}

impl Default for Options {
    /// The defaults are Passenger's for settings that Passenger has.
    fn default() -> Options {
        Options {
            max_per_app: None,
            min_instances: 0,
            max_requests: None,
            max_requests_jitter: 0,
            max_idle_time: Some(Duration::from_secs(300)),
            concurrency: NonZeroU32::new(1),
            spread: None,
            use_global_queue: true,
            max_request_queue_size: NonZeroU32::new(100),
            start_timeout: Duration::from_secs(90),
            drain_timeout: None,
            stop_timeout: Duration::from_secs(60),
            max_request_time: None,
            memory_limit: None,
            work_timeout: Duration::from_secs(60),
            restart_method: RestartMethod::Fitting,
            shares_program: false,
            user: 0,
        }
    }
}

impl Options {
    pub(super) fn limit(&self) -> u32 {
        self.max_per_app.map_or(u32::MAX, NonZeroU32::get)
    }

    pub(super) fn minimum(&self) -> u32 {
        self.min_instances.min(self.limit())
    }

    pub(super) fn at_once(&self) -> u32 {
        self.concurrency.map_or(u32::MAX, NonZeroU32::get)
    }

    pub(super) fn most_requests(&self, number: u64) -> Option<u32> {
        let more = spread::within(number, self.max_requests_jitter.into());
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        Some(self.max_requests?.get().saturating_add(more))
    }

    pub(super) fn queue_limit(&self) -> u32 {
        self.max_request_queue_size.map_or(u32::MAX, NonZeroU32::get)
    }
}
