//! What a status page shows, as plain values.

/// A pool at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The pool's name.
    pub pool: String,
    /// Its process manager: `static`, `dynamic` or `ondemand`.
    pub process_manager: &'static str,
    /// When the pool started, in seconds since 1970.
    pub start: i64,
    /// When this snapshot was taken, in seconds since 1970.
    pub now: i64,
    /// How far local time is ahead of UTC, in seconds.
    pub utc_offset_s: i32,
    /// Requests that were accepted.
    pub accepted: u64,
    /// Connections that wait to be accepted.
    pub listen_queue: ListenQueue,
    /// Workers without a request.
    pub idle: u32,
    /// Workers with a request.
    pub active: u32,
    /// Idle and active workers.
    pub total: u32,
    /// The most that were ever active at once.
    pub max_active: u32,
    /// How often the pool would have grown but for its limit.
    pub max_children_reached: u64,
    /// Requests that took longer than the slow log's limit.
    pub slow: u64,
    /// Most memory of a request, bytes; `None`: the page has none.
    pub memory_peak: Option<u64>,
    /// Requests under way; `None`: each worker has one at a time.
    pub in_flight: Option<u32>,
    /// Those of them whose answers have begun and from which nothing comes; they do not count against `concurrency`.
    pub quiet: u32,
    /// The workers, in the order of their slots.
    pub workers: Vec<WorkerRow>,
}

/// The queue of connections that have not been accepted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenQueue {
    /// Now.
    pub current: u32,
    /// The most there ever were.
    pub max: u32,
    /// The most that fit.
    pub len: u32,
}

/// A worker at one moment. The byte strings are as the client sent them.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRow {
    pub pid: i32,
    /// The stage it is in, by php-fpm's name.
    pub state: &'static str,
    /// When it started, in seconds since 1970.
    pub start: i64,
    /// Requests it has had.
    pub requests: u64,
    /// How long its request takes so far; if it is idle, how long the last one took.
    pub duration_us: u64,
    pub method: Vec<u8>,
    /// Request URI without the query.
    pub uri: Vec<u8>,
    pub query: Vec<u8>,
    /// Length of the request's body.
    pub content_length: u64,
    /// Authenticated user.
    pub user: Vec<u8>,
    /// Script that was run.
    pub script: Vec<u8>,
    /// Share of one processor that the last request took, in percent; 0 unless idle.
    pub last_cpu: f64,
    /// Most memory that the last request took, in bytes; 0 unless idle.
    pub last_memory: u64,
    /// Requests that it has now, where that may be several. php-fpm has no such field.
    pub in_flight: Option<u32>,
    /// Those of them that do not count against `concurrency`.
    pub quiet: u32,
}
