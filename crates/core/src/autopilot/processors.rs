//! The number of workers that keeps the processors busy.

use super::{MOST, Second, sane};
use serde::{Deserialize, Serialize};

/// The factor of a sum for each second.
const DECAY: f64 = 0.97;
/// The part of the time that requests compute, before the first measurement.
const FIRST_GUESS: f64 = 0.25;

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(super) struct Processors {
    /// Seconds of processor time, decayed.
    run: f64,
    /// Seconds that requests waited for something else, decayed.
    blocked: f64,
    /// Processors that the pool gets. None: all.
    usable: Option<f64>,
}

impl Processors {
    /// Returns the limit, and the part of their time that requests compute. `slower`: how many times longer than usual requests
    /// wait; a slow database must not ask for more workers.
    pub(super) fn second(&mut self, second: &Second, slower: f64) -> (f64, f64) {
        let cores = sane(second.machine.cores).max(0.01);
        self.run = DECAY * self.run + sane(second.run);
        self.blocked = DECAY * self.blocked + second.blocked();
        let held = self.run + self.blocked / slower.max(1.0);
        let computing = match held > 0.2 {
            true => (self.run / held).clamp(0.005, 1.0),
            false => FIRST_GUESS,
        };
        let usable = self.usable.unwrap_or(cores);
        // If requests wait for processors, other programs may use them, so only the received processor time counts.
        let usable = match second.lacks_processors() && second.full() > 0.2 {
            true => usable + 0.3 * (sane(second.run) / second.elapsed() - usable),
            false => usable + 0.1 * (cores - usable),
        };
        let usable = usable.clamp(0.01, cores);
        self.usable = Some(usable);
        // Each of n workers computes with this probability. Half a standard deviation more than the mean keeps the processors
        // busy nearly always.
        let workers = usable / computing + 0.5 * (usable * (1.0 - computing)).sqrt() / computing;
        let each = f64::from(second.machine.requests_a_worker.max(1));
        ((workers / each).ceil().clamp(2.0, f64::from(MOST)), computing)
    }

    pub(super) fn usable(&self) -> f64 {
        self.usable.unwrap_or_default()
    }
}
