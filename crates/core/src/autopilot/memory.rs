//! How many workers memory holds.

use super::{MOST, Second, sane};
use serde::{Deserialize, Serialize};

const MIB: f64 = 1_048_576.0;

/// Bytes of a worker before the first sample.
pub(super) const FIRST_GUESS: f64 = 48.0 * MIB;

/// Private bytes of busy workers. The figures rise fast and fall slowly, because a rare route with large requests comes back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Memory {
    mean: f64,
    deviation: f64,
    largest: f64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            mean: 40.0 * MIB,
            deviation: 6.0 * MIB,
            largest: FIRST_GUESS,
        }
    }
}

impl Memory {
    /// Takes samples of workers. A sample counts as at most `there_is`, the whole memory.
    pub(super) fn sample(&mut self, private: &[u64], there_is: u64) {
        if private.is_empty() {
            return;
        }
        let sizes = || private.iter().map(|bytes| (*bytes).min(there_is) as f64);
        let count = private.len() as f64;
        let mean = sizes().sum::<f64>() / count;
        let variance = sizes().map(|size| (size - mean).powi(2)).sum::<f64>() / count;
        follow(&mut self.mean, mean);
        follow(&mut self.deviation, variance.sqrt());
        self.largest = sizes().fold(self.largest * 0.998, f64::max);
    }

    /// Bytes of a usual worker.
    pub(super) fn of_a_worker(&self) -> u64 {
        self.mean as u64
    }

    /// Bytes for workers, if one worker is as large as the largest.
    pub(super) fn room(&self, there_is: u64, shared: u64, others: u64) -> f64 {
        let larger = (self.largest - self.mean).max(0.0);
        0.93 * there_is as f64 - shared as f64 - others as f64 - larger
    }

    /// The most workers that fit with two and a half standard deviations to spare: n · mean + 2.5 · deviation · √n ≤ room.
    pub(super) fn most(&self, room: f64) -> f64 {
        let mean = self.mean.max(MIB / 4.0);
        let spare = 2.5 * self.deviation;
        let root = (spare.mul_add(spare, 4.0 * mean * sane(room)).sqrt() - spare) / (2.0 * mean);
        // The quadratic's root may be a little too small for a number that fits exactly.
        (root * root + 1e-6).floor().clamp(1.0, f64::from(MOST))
    }

    /// Whether one more worker fits now.
    pub(super) fn has_room(&self, second: &Second) -> bool {
        second.current as f64 + self.mean <= 0.92 * second.machine.memory as f64
    }
}

fn follow(figure: &mut f64, seen: f64) {
    let speed = if seen > *figure { 0.3 } else { 0.03 };
    *figure += speed * (seen - *figure);
}
