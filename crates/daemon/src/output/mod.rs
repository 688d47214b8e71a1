//! Output of the pools' processes: split into lines and entries, and written to a file of their user.

pub(crate) mod app_log;
pub(crate) mod entries;
pub(crate) mod lines;
