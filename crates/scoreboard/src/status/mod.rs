//! Status pages: a snapshot of a pool, rendered as php-fpm renders it.
//!
//! Everything here is a function of plain values. This part knows its own [`Snapshot`] and nothing else. It does not
//! know where a snapshot comes from, and how a [`StatusAnswer`] travels. What a client or a worker may have made up (method,
//! URI, user, script) is escaped for the format it is shown in.

mod answer;
mod escape;
mod fields;
mod html;
mod json;
mod openmetrics;
mod query;
mod snapshot;
mod text;
mod xml;

#[cfg(test)]
mod tests;

pub use answer::{StatusAnswer, ping, render, status};
pub use query::{PageFormat, Selection};
pub use snapshot::{ListenQueue, Snapshot, WorkerRow};
