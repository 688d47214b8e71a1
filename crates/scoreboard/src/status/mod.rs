//! Renders a pool's [`Snapshot`] as php-fpm's status page. Text of clients and workers (method, URI, user, script) is
//! escaped for each format.

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
