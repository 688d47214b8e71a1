//! Settings for abandoned requests and overload.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// The rules for requests that must not begin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overload {
    pub abandoned: Abandoned,
    /// Requests run without a client if their path ends like this.
    pub abandoned_keep: Vec<String>,
    pub queue_time: QueueTime,
}

impl Overload {
    /// Requests with a shorter wait are never skipped: some clients start work and leave at once.
    pub const PATIENCE: Duration = Duration::from_secs(1);

    /// Whether a request may be skipped once its client has left. `param` returns its parameters; empty if missing.
    pub fn may_skip<'p>(&self, param: impl Fn(&[u8]) -> &'p [u8]) -> bool {
        let is_safe = matches!(param(b"REQUEST_METHOD"), b"GET" | b"HEAD");
        let is_wanted = !matches!(param(b"RUN_ABANDONED"), b"" | b"0");
        let is_kept = |path: &[u8]| {
            let mut kept = self.abandoned_keep.iter();
            kept.any(|end| !end.is_empty() && path.ends_with(end.as_bytes()))
        };
        let target = param(b"REQUEST_URI");
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        is_safe && !is_wanted && !is_own(&param) && !is_kept(param(b"SCRIPT_NAME")) && !is_kept(path)
    }
}

/// Whether the client may be the site itself. Sites start work by a request to themselves and leave.
fn is_own<'p>(param: impl Fn(&[u8]) -> &'p [u8]) -> bool {
    let address = |name: &[u8]| {
        let text = std::str::from_utf8(param(name)).ok()?;
        text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
    };
    let client = address(b"REMOTE_ADDR");
    client.is_none_or(|client| client.is_loopback() || Some(client) == address(b"SERVER_ADDR"))
}

/// The treatment of a request if its client left before it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Abandoned {
    #[default]
    Run,
    Skip,
    /// Like `Skip`, but a half-closed TCP connection from another machine also counts as left.
    SkipHalfClosed,
    /// All requests run. Counts the requests that `Skip` would skip.
    Count,
}

/// The limit of the wait before a request begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueTime {
    #[default]
    Endless,
    Fixed(Duration),
    /// A short limit while all requests wait.
    Auto,
}
