//! Protocol upgrades such as WebSocket, within a FastCGI request.
//!
//! `forkyard dev` uses this with forkyard's own workers. Web servers can't; they use
//! [`http_listen`](../../docs/reference/runtimes.md#websocket-and-other-upgrades). [`PARAMETER`] marks a request for an
//! upgrade. After an answer with status 101, the request's body carries the client's bytes and the answer's body the
//! application's, until either end closes. Any other status is an ordinary answer.

/// The parameter's name; its value is the requested protocol. Client headers can't set it: they begin with `HTTP_`.
pub const PARAMETER: &str = "FORKYARD_UPGRADE";
