//! The ways a peer can end a connection by what it sends.

use super::record::ProtocolStatus;
use super::reply::Reply;
use std::fmt;

/// Why nothing more can come of a connection. It is to be closed, after [`Violation::reply`] if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// A record's version is not 1, the only one there is: another protocol, most likely.
    NotFastcgi {
        /// The version, or the byte in its place.
        version: u8,
        /// The type, or the byte in its place.
        kind: u8,
    },
    /// The content of a BEGIN_REQUEST record isn't eight bytes long.
    BeginLength {
        /// Its length.
        length: u16,
    },
    /// A request began again before its STDIN had ended.
    BegunTwice {
        /// The request.
        request_id: u16,
    },
    /// STDIN came before PARAMS had ended.
    BodyBeforeParams {
        /// The request.
        request_id: u16,
    },
    /// PARAMS ended inside a name-value pair.
    PairCut {
        /// The request.
        request_id: u16,
    },
    /// The parameters are longer than [`super::Limits::params_bytes`].
    ParamsTooLong {
        /// The request.
        request_id: u16,
        /// The limit.
        limit: usize,
    },
    /// The parameters are more than [`super::Limits::params_count`].
    ParamsTooMany {
        /// The request.
        request_id: u16,
        /// The limit.
        limit: usize,
    },
    /// The role isn't known here, and the connection was to be closed after the request.
    UnknownRole {
        /// The request.
        request_id: u16,
        /// The role asked for.
        role: u16,
    },
    /// The client took its request back before its parameters were in, and the connection was to be closed after it.
    AbortedEarly {
        /// The request.
        request_id: u16,
    },
}

impl Violation {
    /// What the peer is told before the connection is closed.
    pub fn reply(&self) -> Option<Reply> {
        let (request_id, status) = match *self {
            Violation::ParamsTooLong { request_id, .. } | Violation::ParamsTooMany { request_id, .. } => {
                (request_id, ProtocolStatus::Overloaded)
            }
            Violation::UnknownRole { request_id, .. } => (request_id, ProtocolStatus::UnknownRole),
            Violation::AbortedEarly { request_id } => (request_id, ProtocolStatus::RequestComplete),
            Violation::NotFastcgi { .. }
            | Violation::BeginLength { .. }
            | Violation::BegunTwice { .. }
            | Violation::BodyBeforeParams { .. }
            | Violation::PairCut { .. } => return None,
        };
        Some(Reply::end(request_id, status))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Violation::NotFastcgi { version, kind } => {
                write!(f, "not a fastcgi record: version {version}, type {kind}")
            }
            Violation::BeginLength { length } => {
                write!(f, "fastcgi begin request record of {length} bytes, 8 expected")
            }
            Violation::BegunTwice { request_id } => {
                write!(
                    f,
                    "fastcgi request {request_id} begun again before its input ended"
                )
            }
            Violation::BodyBeforeParams { request_id } => {
                write!(
                    f,
                    "fastcgi request {request_id}: input before the parameters ended"
                )
            }
            Violation::PairCut { request_id } => {
                write!(
                    f,
                    "fastcgi request {request_id}: parameters end inside a name-value pair"
                )
            }
            Violation::ParamsTooLong { request_id, limit } => {
                write!(
                    f,
                    "fastcgi request {request_id}: parameters longer than {limit} bytes"
                )
            }
            Violation::ParamsTooMany { request_id, limit } => {
                write!(f, "fastcgi request {request_id}: more than {limit} parameters")
            }
            Violation::UnknownRole { request_id, role } => {
                write!(f, "fastcgi request {request_id}: unknown role {role}")
            }
            Violation::AbortedEarly { request_id } => {
                write!(
                    f,
                    "fastcgi request {request_id}: aborted before its parameters ended"
                )
            }
        }
    }
}

impl std::error::Error for Violation {}
