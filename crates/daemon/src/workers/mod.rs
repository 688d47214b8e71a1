//! The workers: forks, messages, output, ends and crashes.

pub(crate) mod crashes;
pub(crate) mod deaths;
pub(crate) mod env_file;
pub(crate) mod events;
pub(crate) mod fork;
pub(crate) mod last_connection;
pub(crate) mod orphans;
pub(crate) mod pool_output;
pub(crate) mod reports;
pub(crate) mod slow;
pub(crate) mod start_report;
pub(crate) mod worker_output;
