//! Protocol violations.

use super::record::ProtocolStatus;
use super::reply::Reply;
use std::fmt;
use std::time::Duration;

/// Why a connection must be closed, after [`Violation::reply`] if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// The version is not 1; probably another protocol.
    NotFastcgi {
        /// The version byte.
        version: u8,
        /// The type byte.
        kind: u8,
    },
    /// BEGIN_REQUEST's content is not eight bytes.
    BeginLength {
        /// Its length.
        length: u16,
    },
    /// A request began again before the end of its STDIN.
    BegunTwice {
        /// The request.
        request_id: u16,
    },
    /// STDIN before the end of PARAMS.
    BodyBeforeParams {
        /// The request.
        request_id: u16,
    },
    /// PARAMS ended within a pair.
    PairCut {
        /// The request.
        request_id: u16,
    },
    /// More bytes than [`super::Limits::params_bytes`].
    ParamsTooLong {
        /// The request.
        request_id: u16,
        /// The limit.
        limit: usize,
    },
    /// More parameters than [`super::Limits::params_count`].
    ParamsTooMany {
        /// The request.
        request_id: u16,
        /// The limit.
        limit: usize,
    },
    /// Unknown role, on a connection that is not kept.
    UnknownRole {
        /// The request.
        request_id: u16,
        /// The requested role.
        role: u16,
    },
    /// Cancelled before the end of its parameters, on a connection that is not kept.
    AbortedEarly {
        /// The request.
        request_id: u16,
    },
}

impl Violation {
    /// The last reply before closing.
    pub fn reply(&self) -> Option<Reply> {
        let (request_id, status) = match *self {
            Violation::ParamsTooLong { request_id, .. } | Violation::ParamsTooMany { request_id, .. } => {
                (request_id, ProtocolStatus::Overloaded)
            }
            Violation::UnknownRole { request_id, .. } => (request_id, ProtocolStatus::UnknownRole),
            Violation::AbortedEarly { request_id } => (request_id, ProtocolStatus::RequestComplete),
            _ => return None,
        };
        Some(Reply::end(request_id, status))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (request_id, what) = match *self {
            Violation::NotFastcgi { version, kind } => {
                return write!(f, "not a fastcgi record: version {version}, type {kind}");
            }
            Violation::BeginLength { length } => {
                return write!(f, "fastcgi begin request record of {length} bytes, 8 expected");
            }
            Violation::BegunTwice { request_id } => {
                return write!(
                    f,
                    "fastcgi request {request_id} begun again before its input ended"
                );
            }
            Violation::BodyBeforeParams { request_id } => {
                (request_id, "input before the parameters ended".to_owned())
            }
            Violation::PairCut { request_id } => {
                (request_id, "parameters end inside a name-value pair".to_owned())
            }
            Violation::ParamsTooLong { request_id, limit } => {
                (request_id, format!("parameters longer than {limit} bytes"))
            }
            Violation::ParamsTooMany { request_id, limit } => {
                (request_id, format!("more than {limit} parameters"))
            }
            Violation::UnknownRole { request_id, role } => (request_id, format!("unknown role {role}")),
            Violation::AbortedEarly { request_id } => {
                (request_id, "aborted before its parameters ended".to_owned())
            }
        };
        write!(f, "fastcgi request {request_id}: {what}")
    }
}

impl std::error::Error for Violation {}

/// Why a request did not come, or not to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The bytes are wrong.
    Violation(Violation),
    /// The client left before its parameters ended.
    Cut,
    /// The client was too slow.
    Late {
        /// The time limit.
        within: Duration,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Violation(violation) => violation.fmt(f),
            Fault::Cut => f.write_str("the client left in the middle of its request"),
            Fault::Late { within } => {
                let within = within.as_secs_f64();
                write!(f, "the client did not complete its request within {within} s")
            }
        }
    }
}

impl std::error::Error for Fault {}
