//! What an application may do. Invalid values can't be expressed.

use forkyard_base::spread;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::time::Duration;

/// How an application's instances are replaced by such with new code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartMethod {
    /// All old ones retire at once; requests wait for new ones.
    Blocking,
    /// One by one; each new one is up before an old one retires.
    Rolling,
    /// One by one if a place is free for the first new one, and else all at once.
    Fitting,
}

/// An application's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Most instances of the application; `None`: as many as the pool has.
    pub max_per_app: Option<NonZeroU32>,
    /// Instances that are kept, wanted or not. More than `max_per_app` means just as many as that.
    pub min_instances: u32,
    /// Requests after which an instance is replaced; `None`: never.
    pub max_requests: Option<NonZeroU32>,
    /// Up to so many more, another number for each instance.
    #[serde(default)]
    pub max_requests_jitter: u32,
    /// Time without a session after which an instance is let go; `None`: never.
    pub max_idle_time: Option<Duration>,
    /// Requests that an instance works on at once; `None`: any number.
    pub concurrency: Option<NonZeroU32>,
    /// Another instance is started as long as there are fewer and each is busy, also where one has room; `None`: not before
    /// all are full.
    #[serde(default)]
    pub spread: Option<NonZeroU32>,
    /// Where requests wait when every instance is busy and no more can be started: for whichever instance is free first,
    /// or (`false`) in the private queue of the least busy one.
    pub use_global_queue: bool,
    /// Most requests that wait; `None`: any number.
    pub max_request_queue_size: Option<NonZeroU32>,
    /// From the start of an instance until it must be up.
    pub start_timeout: Duration,
    /// How long the sessions of an instance that retires may last; `None`: as long as they like.
    pub drain_timeout: Option<Duration>,
    /// From asking an instance to stop until it is killed.
    pub stop_timeout: Duration,
    /// How long a request may last until its instance is killed; `None`: as long as it likes.
    pub max_request_time: Option<Duration>,
    /// Bytes above which an instance is replaced; `None`: no limit.
    pub memory_limit: Option<u64>,
    /// How long out-of-band work may take.
    pub work_timeout: Duration,
    /// What restart files do.
    pub restart_method: RestartMethod,
    /// The instances pass requests on to one program, which is what `max_requests` and `memory_limit` are about.
    #[serde(default)]
    pub shares_program: bool,
    /// Whose it is: applications of one user have a share of what the pool has together. 0: that is not known, or all are one
    /// user's.
    #[serde(default)]
    pub user: u32,
}

impl Default for Options {
    /// Passenger's defaults, where it has the setting.
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

    /// Requests after which what has this number is replaced.
    pub(super) fn most_requests(&self, number: u64) -> Option<u32> {
        let more = spread::within(number, self.max_requests_jitter.into());
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        Some(self.max_requests?.get().saturating_add(more))
    }

    pub(super) fn queue_limit(&self) -> u32 {
        self.max_request_queue_size.map_or(u32::MAX, NonZeroU32::get)
    }
}
