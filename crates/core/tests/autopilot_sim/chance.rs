//! Random sizes and times.

use crate::random::Random;

/// A number in (0, 1).
pub(super) fn part(random: &mut Random) -> f64 {
    ((random.next() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// The time to the next of events that come independently of each other.
pub(super) fn gap(random: &mut Random, mean: f64) -> f64 {
    -mean * part(random).ln()
}

/// A lognormal number with this mean and relative deviation.
pub(super) fn skewed(random: &mut Random, mean: f64, deviation: f64) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    let variance = deviation.mul_add(deviation, 1.0).ln();
    let angle = std::f64::consts::TAU * part(random);
    let normal = (-2.0 * part(random).ln()).sqrt() * angle.cos();
    (variance.sqrt().mul_add(normal, -variance / 2.0)).exp() * mean
}

/// The value below which this part of the values is.
pub(super) fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() as f64 * part) as usize;
    sorted
        .get(place.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::INFINITY)
}
