//! Processes that are no workers and belong to no application pool.

use super::helper_process::RunningHelper;
use super::{jobs, jobs_tcp, preloader, programs, reporter, spawner, warm};
use crate::master::event::{GenerationId, PoolId};
use crate::worker::Settings;
use crate::zygotes::Unfit;
use std::collections::HashMap;

#[derive(Debug)]
pub(in crate::master) struct Helpers {
    pub(super) preloaders: HashMap<i32, preloader::Preloader>,
    /// Second preloaders whose process is not known yet.
    pub(super) seconds: HashMap<GenerationId, preloader::Preloader>,
    pub(super) warm_ups: HashMap<GenerationId, warm::WarmUp>,
    pub(super) unfit: Unfit<Settings>,
    /// Whether something has changed since the last search for unused zygotes.
    pub(super) zygotes_to_check: bool,
    /// Whether a configuration has come since zygotes were last started.
    pub(super) zygotes_to_start: bool,
    pub(super) reporters: HashMap<PoolId, reporter::ReporterState>,
    pub(super) unavailable_responders: HashMap<PoolId, RunningHelper>,
    pub(super) jobs: Option<jobs::JobsState>,
    pub(super) jobs_tcp: jobs_tcp::JobsTcp,
    pub(super) programs: HashMap<GenerationId, programs::RunningProgram>,
    pub(super) spawner: spawner::Spawner,
}

impl Helpers {
    pub(super) fn new(spawner: spawner::Spawner) -> Helpers {
        Helpers {
            preloaders: HashMap::new(),
            seconds: HashMap::new(),
            warm_ups: HashMap::new(),
            unfit: Unfit::default(),
            zygotes_to_check: false,
            zygotes_to_start: false,
            reporters: HashMap::new(),
            unavailable_responders: HashMap::new(),
            jobs: None,
            jobs_tcp: jobs_tcp::JobsTcp::default(),
            programs: HashMap::new(),
            spawner,
        }
    }
}
