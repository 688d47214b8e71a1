//! Buckets of a histogram: base-2 exponential, eight to a power of two (scale 3 of OpenTelemetry and of Prometheus'
//! native histograms).
//!
//! Bucket `k` has the numbers over `2^(k/8)`, up to and including `2^((k+1)/8)`. The first bucket begins at zero, and the
//! last bucket has no end. The middle of a bucket differs from its numbers by at most 4.4 %.

/// The number of buckets: numbers up to 2^32 have their own.
pub const BUCKETS: usize = 256;

/// Buckets in a power of two.
pub const IN_OCTAVE: usize = 8;

/// 2^(63 + i/8) for `i` from 1 to 7, rounded down, and the highest number: the bounds within a power of two, for numbers
/// with the highest bit moved to the top. Each of the first seven lies in its eighth of the power of two.
const BOUNDS: [u64; IN_OCTAVE] = [
    10_058_158_527_438_640_870,
    10_968_499_650_544_839_023,
    11_961_233_684_655_323_370,
    13_043_817_825_332_782_212,
    14_224_384_202_002_324_189,
    15_511_800_964_685_064_948,
    16_915_738_899_553_466_670,
    u64::MAX,
];

/// Returns a number's bucket.
pub fn bucket(value: u64) -> usize {
    if value < 2 {
        return 0;
    }
    let exponent = value.ilog2() as usize;
    let top = value << (63 - exponent);
    let eighth = (top >> 60) as usize % IN_OCTAVE;
    let above = eighth + usize::from(top > BOUNDS[eighth]);
    let is_power = usize::from(top == 1 << 63);
    (exponent * IN_OCTAVE + above - is_power).min(BUCKETS - 1)
}

/// Returns the highest number of a bucket.
pub fn upper_bound(bucket: usize) -> f64 {
    ((bucket + 1) as f64 / IN_OCTAVE as f64).exp2()
}

/// Returns the number with the smallest relative difference from all numbers of a bucket.
pub fn middle(bucket: usize) -> f64 {
    match bucket {
        0 => 1.0,
        _ => ((bucket as f64 + 0.5) / IN_OCTAVE as f64).exp2(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_floating_point() {
        let mut state = 1_u64;
        let mut off = 0;
        for _ in 0..400_000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = (state >> 32) >> (state % 31);
            let exact = ((value.max(1) as f64).log2() * 8.0).ceil() as usize;
            let expected = exact.saturating_sub(1).min(BUCKETS - 1);
            // Floating point is wrong by one for numbers on a bound.
            off += usize::from(bucket(value) != expected);
            assert!(bucket(value).abs_diff(expected) <= 1, "{value}");
        }
        assert!(off < 40, "{off}");
    }

    #[test]
    fn powers_of_two_end_their_bucket() {
        assert_eq!([0, 1, 2, 3, 4].map(bucket), [0, 0, 7, 12, 15]);
        for exponent in 1..=32 {
            let power = 1_u64 << exponent;
            assert_eq!(bucket(power), exponent * IN_OCTAVE - 1);
            assert_eq!(upper_bound(bucket(power)), power as f64);
            assert!(bucket(power + 1) > bucket(power) || exponent == 32);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_middle_is_near_every_number_of_its_bucket() {
        for value in (1..2_000_u64).chain((1..32).map(|shift| (1 << shift) + 1)) {
            let error = (middle(bucket(value)) / value as f64 - 1.0).abs();
            assert!(error <= 0.0443, "{value}: {error}");
        }
    }
}
