//! Histograms with base-2 exponential buckets, eight to a power of two: bucket `k` has the numbers over `2^(k/8)`, up to and
//! including `2^((k+1)/8)`.

use serde::{Deserialize, Serialize};

const IN_OCTAVE: f64 = 8.0;

/// Index and count of each bucket that was hit, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Buckets(pub(crate) Vec<(u16, u64)>);

impl Buckets {
    /// Returns what was added since an earlier reading; `None` if a count has fallen, because counting began anew.
    pub(crate) fn since(&self, earlier: &Buckets) -> Option<Buckets> {
        let before = |index: u16| earlier.of(index);
        let has_fallen = earlier.0.iter().any(|(index, count)| self.of(*index) < *count);
        if has_fallen {
            return None;
        }
        let added = self
            .0
            .iter()
            .map(|(index, count)| (*index, count - before(*index)));
        Some(Buckets(added.filter(|(_, count)| *count > 0).collect()))
    }

    fn of(&self, index: u16) -> u64 {
        let found = self.0.iter().find(|(other, _)| *other == index);
        found.map_or(0, |(_, count)| *count)
    }

    /// Returns the number that this part of all numbers does not exceed, wrong by 4.4 % at most; `None` without a number.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let all = self
            .0
            .iter()
            .fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let rank = (all as f64 * part).ceil().max(1.0);
        let mut below = 0_u64;
        let found = self.0.iter().find(|(_, count)| {
            below = below.saturating_add(*count);
            below as f64 >= rank
        });
        found.map(|(index, _)| ((f64::from(*index) + 0.5) / IN_OCTAVE).exp2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: &[u64]) -> Buckets {
        let mut counts = std::collections::BTreeMap::new();
        for number in numbers {
            let index = ((*number as f64).log2() * IN_OCTAVE).ceil().max(1.0) as u16 - 1;
            *counts.entry(index).or_default() += 1;
        }
        Buckets(counts.into_iter().collect())
    }

    #[test]
    fn quantiles_are_of_what_was_added() {
        let old: Vec<u64> = (1..=1000).map(|number| number * 1_000_000).collect();
        let new: Vec<u64> = (1..=100).map(|number| 900 + number).collect();
        let added = of(&[&old[..], &new[..]].concat()).since(&of(&old)).unwrap();
        for (part, exact) in [(0.5, 950.0), (0.95, 995.0), (0.99, 999.0), (1.0, 1000.0)] {
            let found = added.quantile(part).unwrap();
            assert!((found / exact - 1.0).abs() < 0.05, "{part}: {found}");
        }
    }

    #[test]
    fn without_numbers_there_is_no_quantile() {
        let same = of(&[5, 6]);
        assert_eq!(same.since(&same), Some(Buckets::default()));
        assert_eq!(Buckets::default().quantile(0.5), None);
        assert_eq!(
            Buckets(vec![(1, u64::MAX), (2, 9)]).quantile(0.5).map(f64::floor),
            Some(1.0)
        );
    }

    #[test]
    fn counts_that_fell_are_of_another_pool() {
        assert_eq!(of(&[5]).since(&of(&[5, 6])), None);
        assert_eq!(of(&[5, 5]).since(&of(&[6])), None);
    }
}
