//! The helpers, each with its own process: reporters, the web process and the jobs process.

pub(crate) mod jobs;
pub(crate) mod jobs_tcp;
pub(crate) mod reporter;
pub(crate) mod web;
