//! Deployments: a pool gets another release.

use super::event_loop::Master;
use super::pool_requests::Handled;
use forkyard_protocol::control::Answer;
use std::path::Path;

impl Master {
    pub(super) fn deploy(&mut self, _: u64, pool: &str, _: &Path, _: Option<bool>) -> Handled {
        Err(no_release(pool))
    }

    pub(super) fn roll_back(&mut self, _: u64, pool: &str) -> Handled {
        Err(no_release(pool))
    }

    pub(super) fn releases(&mut self, _: u64, _: Option<&str>) -> Handled {
        Ok(Some(Answer::Releases { releases: Vec::new() }))
    }
}

fn no_release(pool: &str) -> Answer {
    Answer::refusal(format!("pool {pool} has no key release"))
}
