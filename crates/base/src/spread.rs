//! Pseudo-random delays, so that processes don't act at the same moment.

/// Returns a number from 0 to `most`, evenly distributed over seeds (SplitMix64).
pub fn within(seed: u64, most: u64) -> u64 {
    let mut bits = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    match most.checked_add(1) {
        Some(count) => bits % count,
        None => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_far_apart_and_within_the_bounds() {
        let numbers: Vec<u64> = (0..1000).map(|seed| within(seed, 9)).collect();
        for wanted in 0..10 {
            let count = numbers.iter().filter(|number| **number == wanted).count();
            assert!((50..200).contains(&count), "{wanted}: {count}");
        }
        assert_eq!(within(7, 0), 0);
        assert_ne!(within(7, u64::MAX), within(8, u64::MAX));
    }
}
