//! Processes beside the workers and preloaders: reporters, 503 responders, and the jobs process.

use super::helper_process::RunningHelper;
use super::jobs::JobsState;
use super::jobs_tcp::JobsTcp;
use super::reporter::ReporterState;
use crate::master::event::PoolId;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(in crate::master) struct Helpers {
    pub(super) reporters: HashMap<PoolId, ReporterState>,
    pub(super) unavailable_responders: HashMap<PoolId, RunningHelper>,
    pub(super) jobs: Option<JobsState>,
    pub(super) jobs_tcp: JobsTcp,
}
