//! The processes that are neither workers nor of an application pool.

use super::{preloader, programs, reporter, spawner, stand_in};
use crate::master::event::{GenerationId, PoolId};
use std::collections::HashMap;

/// Processes that are neither workers nor of an application pool.
#[derive(Debug)]
pub(in crate::master) struct Helpers {
    /// Preloaders by pid.
    pub(super) preloaders: HashMap<i32, preloader::Preloader>,
    /// Second preloaders whose process is not known yet.
    pub(super) seconds: HashMap<GenerationId, preloader::Preloader>,
    /// Which preloader was asked which scripts were run most, and for which other.
    pub(super) asked_for_scripts: HashMap<i32, i32>,
    pub(super) reporters: HashMap<PoolId, reporter::ReporterState>,
    /// Who refuses requests.
    pub(super) stand_ins: HashMap<PoolId, stand_in::StandIn>,
    /// Programs that speak HTTP.
    pub(super) programs: HashMap<GenerationId, programs::RunningProgram>,
    /// What is being started by the spawning kit.
    pub(super) spawner: spawner::Spawner,
}

impl Helpers {
    /// None yet.
    pub(super) fn new(spawner: spawner::Spawner) -> Helpers {
        Helpers {
            preloaders: HashMap::new(),
            seconds: HashMap::new(),
            asked_for_scripts: HashMap::new(),
            reporters: HashMap::new(),
            stand_ins: HashMap::new(),
            programs: HashMap::new(),
            spawner,
        }
    }
}
