//! Content of a status page.

/// State of a pool.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Snapshot {
    /// The pool's name.
    pub pool: String,
    /// `static`, `dynamic` or `ondemand`.
    pub process_manager: &'static str,
    /// Start of the pool, in seconds since 1970.
    pub start: i64,
    /// Time of the snapshot, in seconds since 1970.
    pub now: i64,
    /// Local time minus UTC, in seconds.
    pub utc_offset_s: i32,
    /// Accepted requests.
    pub accepted: u64,
    /// The listen queue.
    pub listen_queue: ListenQueue,
    /// Idle workers.
    pub idle: u32,
    /// Busy workers.
    pub active: u32,
    /// All workers.
    pub total: u32,
    /// Maximum of active workers.
    pub max_active: u32,
    /// How often the pool hit its worker limit.
    pub max_children_reached: u64,
    /// Slow requests.
    pub slow: u64,
    /// Peak memory of a request in bytes, if shown.
    pub memory_peak: Option<u64>,
    /// Concurrent requests; `None` if workers serve one at a time.
    pub in_flight: Option<u32>,
    /// Requests whose answers have begun and are idle; they don't count against `concurrency`.
    pub quiet: u32,
    /// Workers by slot.
    pub workers: Vec<WorkerRow>,
}

/// Connections not yet accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListenQueue {
    /// Current length.
    pub current: u32,
    /// Maximum length so far.
    pub max: u32,
    /// Backlog limit.
    pub len: u32,
}

/// A worker; byte strings are as the client sent them.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRow {
    pub pid: i32,
    /// Stage name of php-fpm.
    pub state: &'static str,
    /// Start, in seconds since 1970.
    pub start: i64,
    /// Requests so far.
    pub requests: u64,
    /// Duration of the current or last request, in microseconds.
    pub duration_us: u64,
    pub method: Vec<u8>,
    /// Request URI without the query.
    pub uri: Vec<u8>,
    pub query: Vec<u8>,
    /// Length of the request body.
    pub content_length: u64,
    /// Authenticated user.
    pub user: Vec<u8>,
    /// Executed script.
    pub script: Vec<u8>,
    /// CPU usage of the last request, in percent of one CPU; 0 unless idle.
    pub last_cpu: f64,
    /// Peak memory of the last request, in bytes; 0 unless idle.
    pub last_memory: u64,
    /// Current requests of a concurrent worker; not in php-fpm.
    pub in_flight: Option<u32>,
    /// Requests that don't count against `concurrency`.
    pub quiet: u32,
}
