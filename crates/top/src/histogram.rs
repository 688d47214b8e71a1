//! The growth of a histogram between two readings.

/// Index and count of each bucket that was hit, in order.
pub(crate) type Buckets = Vec<(u8, u64)>;

/// Returns the growth since an earlier reading; `None` if a count has fallen, because counting began again.
pub(crate) fn added(now: &[(u8, u64)], before: &[(u8, u64)]) -> Option<Buckets> {
    let count = |buckets: &[(u8, u64)], index: u8| {
        let found = buckets.iter().find(|(other, _)| *other == index);
        found.map_or(0, |(_, count)| *count)
    };
    if before
        .iter()
        .any(|(index, earlier)| count(now, *index) < *earlier)
    {
        return None;
    }
    let added = now
        .iter()
        .map(|(index, later)| (*index, later - count(before, *index)));
    Some(added.filter(|(_, count)| *count > 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_base::scale;
    use forkyard_protocol::numbers::quantile;
    use std::collections::BTreeMap;

    fn of(numbers: &[u64]) -> Buckets {
        let mut counts = BTreeMap::new();
        for number in numbers {
            *counts
                .entry(u8::try_from(scale::bucket(*number)).unwrap())
                .or_default() += 1;
        }
        counts.into_iter().collect()
    }

    #[test]
    fn quantiles_are_of_what_was_added() {
        let old: Vec<u64> = (1..=1000).map(|number| number * 1_000_000).collect();
        let new: Vec<u64> = (1..=100).map(|number| 900 + number).collect();
        let added = added(&of(&[&old[..], &new[..]].concat()), &of(&old)).unwrap();
        for (part, exact) in [(0.5, 950.0), (0.95, 995.0), (0.99, 999.0), (1.0, 1000.0)] {
            let found = quantile(&added, part).unwrap();
            assert!((found / exact - 1.0).abs() < 0.05, "{part}: {found}");
        }
        assert_eq!(super::added(&of(&old), &of(&old)), Some(Vec::new()));
    }

    #[test]
    fn counts_that_fell_are_of_another_pool() {
        assert_eq!(added(&of(&[5]), &of(&[5, 6])), None);
        assert_eq!(added(&of(&[5, 5]), &of(&[60])), None);
    }
}
