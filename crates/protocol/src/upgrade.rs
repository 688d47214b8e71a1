//! A connection that goes over to another protocol, such as WebSocket, within a FastCGI request.
//!
//! Web servers can't do that: they have [`http_listen`](../../docs/reference/runtimes.md#websocket-and-other-upgrades). `forkyard
//! dev` can, because it speaks to forkyard's own workers. A request with this parameter asks for the protocol that is its value.
//! If the answer has status 101, the request's body is from then on what the client says, and the answer's body what the
//! application says, for as long as both ends want. Any other answer is an answer.

/// The parameter's name. No client's header can be it: the names of these begin with `HTTP_`.
pub const PARAMETER: &str = "FORKYARD_UPGRADE";
