//! Random times and sizes.

use crate::random::Random;

/// A number in (0, 1).
pub(super) fn part(random: &mut Random) -> f64 {
    ((random.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

pub(super) fn is(random: &mut Random, chance: f64) -> bool {
    part(random) < chance
}

pub(super) fn normal(random: &mut Random) -> f64 {
    let angle = std::f64::consts::TAU * part(random);
    (-2.0 * part(random).ln()).sqrt() * angle.cos()
}

/// A lognormal number with this median and deviation of the logarithm.
pub(super) fn skewed(random: &mut Random, median: f64, deviation: f64) -> f64 {
    median * (deviation * normal(random)).exp()
}

/// The number of events in a second that has this many on average.
pub(super) fn count(random: &mut Random, mean: f64) -> u32 {
    if mean > 50.0 {
        return (mean + mean.sqrt() * normal(random)).max(0.0).round() as u32;
    }
    let (mut events, mut product) = (0, part(random));
    let end = (-mean).exp();
    while product > end {
        events += 1;
        product *= part(random);
    }
    events
}
