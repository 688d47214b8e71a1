//! The FastCGI protocol, version 1.
//!
//! [`Connection`] is the server side of a connection, with its phases and time limits. It consists of a [`Responder`],
//! which decodes requests, and an [`Output`], which encodes answers. [`Request`] and [`Answer`] are the client side. All are pure: no descriptors, no clock, no blocking. Parameters have no meaning here.
//!
//! Section numbers refer to the FastCGI Specification 1.0.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod client;
mod connection;
mod output;
mod pairs;
mod params;
mod record;
mod reply;
mod responder;
mod violation;

pub use client::{Answer, Part, Request, get_values};
pub use connection::{Connection, Event, Phase, Piece, Timeouts};
pub use output::Output;
pub use pairs::append_pair;
pub use params::{Limits, Params, Repeated};
pub use record::{
    HEADER_LENGTH, Header, MAX_CONTENT, ProtocolStatus, RecordType, Role, VERSION, end_request, header,
};
pub use reply::{Reply, Values};
pub use responder::{Input, Responder};
pub use violation::{Fault, Violation};

#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;
