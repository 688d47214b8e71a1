//! A starting process's recorded steps.

use super::Effects;
use crate::event::JourneyId;
use crate::handshake::response::Response;
use crate::journey::Record;
use forkyard_sys::clock;

impl Effects {
    pub fn steps_so_far(&self, id: JourneyId) -> Vec<Record> {
        let Some(live) = self.live.get(&id) else {
            return Vec::new();
        };
        let wall = i128::from(clock::epoch_seconds()) * 1_000_000_000;
        let response = Response {
            steps: self.read_steps(live),
            wall_ahead_ns: wall - i128::from(clock::now().as_nanos()),
            ..Response::default()
        };
        response.records().0
    }
}
