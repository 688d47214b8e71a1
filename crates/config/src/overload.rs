//! What a pool does with requests that nobody waits for, and with too many requests.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;

/// Which requests a pool's workers do not begin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overload {
    pub abandoned: Abandoned,
    /// Ends of paths whose requests run without a client.
    pub abandoned_keep: Vec<String>,
    pub queue_time: QueueTime,
}

impl Overload {
    /// Clients that start work and leave at once are gone sooner: requests that waited less are not looked at.
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

/// Whether the client may be the site itself: sites start work by a request to themselves, and do not wait for it.
fn is_own<'p>(param: impl Fn(&[u8]) -> &'p [u8]) -> bool {
    let address = |name: &[u8]| {
        let text = std::str::from_utf8(param(name)).ok()?;
        text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
    };
    let client = address(b"REMOTE_ADDR");
    client.is_none_or(|client| client.is_loopback() || Some(client) == address(b"SERVER_ADDR"))
}

/// Whether a request runs whose client has left before it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Abandoned {
    #[default]
    Run,
    Skip,
    /// A client of another machine that has closed its half of a TCP connection has left, too.
    SkipHalfClosed,
    /// All requests run. Those that `Skip` would skip are counted.
    Count,
}

/// How long a request may wait before it begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueTime {
    #[default]
    Endless,
    Fixed(Duration),
    /// Not for long, while all requests wait.
    Auto,
}
