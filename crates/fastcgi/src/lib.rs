//! The FastCGI protocol, version 1: bytes to values and back.
//!
//! [`Responder`] is the server side of one connection and [`Output`] encodes its answers; [`Request`] and [`Answer`]
//! are the client side. All are pure: they own no descriptor, read no clock and never block, so the same code serves a
//! worker, a test and a load generator. The crate knows `std` alone; it must not learn what a parameter means to PHP or to
//! a web server.
//!
//! Section numbers in the documentation are those of the FastCGI Specification 1.0.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod client;
mod output;
mod pairs;
mod params;
mod record;
mod reply;
mod responder;
mod violation;

pub use client::{Answer, Part, Request, get_values};
pub use output::Output;
pub use pairs::append_pair;
pub use params::{Limits, Params, Repeated};
pub use record::{
    HEADER_LENGTH, Header, MAX_CONTENT, ProtocolStatus, RecordType, Role, UnknownNumber, VERSION,
    end_request, header,
};
pub use reply::{Reply, Values};
pub use responder::{Input, Responder};
pub use violation::Violation;

/// The example in the README.
#[doc = include_str!("../README.md")]
#[cfg(doctest)]
struct Readme;
