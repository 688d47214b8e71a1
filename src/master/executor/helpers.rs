//! The processes that are neither workers nor of an application pool.

use super::{jobs, jobs_tcp, preloader, programs, reporter, spawner, unavailable, warm, zygote};
use crate::master::event::{GenerationId, PoolId};
use std::collections::HashMap;

/// Processes that are neither workers nor of an application pool.
#[derive(Debug)]
pub(in crate::master) struct Helpers {
    /// Preloaders by pid.
    pub(super) preloaders: HashMap<i32, preloader::Preloader>,
    /// Second preloaders whose process is not known yet.
    pub(super) seconds: HashMap<GenerationId, preloader::Preloader>,
    /// Generations with workers of a zygote that are being warmed up.
    pub(super) warm_ups: HashMap<GenerationId, warm::WarmUp>,
    /// What no zygote can be made from.
    pub(super) unfit: zygote::Unfit,
    /// Something has changed since it was looked whether each zygote is of use.
    pub(super) zygotes_to_check: bool,
    /// A configuration has come since it was looked whether each pool finds a zygote.
    pub(super) zygotes_to_start: bool,
    pub(super) reporters: HashMap<PoolId, reporter::ReporterState>,
    /// The processes that refuse requests.
    pub(super) unavailable_responders: HashMap<PoolId, unavailable::UnavailableResponder>,
    /// What keeps background jobs.
    pub(super) jobs: Option<jobs::JobsState>,
    pub(super) jobs_tcp: jobs_tcp::JobsTcp,
    /// Programs that speak HTTP.
    pub(super) programs: HashMap<GenerationId, programs::RunningProgram>,
    /// What is being started by the spawning kit.
    pub(super) spawner: spawner::Spawner,
}

impl Helpers {
    /// The state of a master that has started no helper process.
    pub(super) fn new(spawner: spawner::Spawner) -> Helpers {
        Helpers {
            preloaders: HashMap::new(),
            seconds: HashMap::new(),
            warm_ups: HashMap::new(),
            unfit: zygote::Unfit::default(),
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
