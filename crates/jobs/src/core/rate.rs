//! The most starts in a time: a token bucket that fills evenly.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bucket {
    jobs: u32,
    per_ms: u64,
    parts: u64,
    since_ms: u64,
}

impl Bucket {
    /// A full bucket. `jobs` and `per_ms` are at least 1.
    pub(super) fn new(jobs: u32, per_ms: u64) -> Bucket {
        let (jobs, per_ms) = (jobs.max(1), per_ms.max(1));
        Bucket {
            jobs,
            per_ms,
            parts: u64::from(jobs).saturating_mul(per_ms),
            since_ms: 0,
        }
    }

    pub(super) fn adjusted(self, jobs: u32, per_ms: u64) -> Bucket {
        let full = Bucket::new(jobs, per_ms);
        let same = self.jobs == full.jobs && self.per_ms == full.per_ms;
        if same { self } else { full }
    }

    pub(super) fn refill(&mut self, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.since_ms);
        self.since_ms = self.since_ms.max(now_ms);
        let most = u64::from(self.jobs).saturating_mul(self.per_ms);
        let gained = passed.saturating_mul(u64::from(self.jobs));
        self.parts = self.parts.saturating_add(gained).min(most);
    }

    pub(super) fn has_token(&self) -> bool {
        self.parts >= self.per_ms
    }

    pub(super) fn spend(&mut self) {
        self.parts = self.parts.saturating_sub(self.per_ms);
    }

    /// The time of the next token, or `None` if there is one.
    pub(super) fn next_token(&self) -> Option<u64> {
        let lacks = self.per_ms.checked_sub(self.parts).filter(|lacks| *lacks > 0)?;
        Some(self.since_ms.saturating_add(lacks.div_ceil(u64::from(self.jobs))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_lets_through_what_it_says_and_no_more() {
        let mut bucket = Bucket::new(3, 1000);
        let (mut starts, mut now) = (Vec::new(), 0);
        while starts.len() < 30 {
            bucket.refill(now);
            if bucket.has_token() {
                bucket.spend();
                starts.push(now);
            } else {
                let next = bucket.next_token().expect("a time");
                assert!(next > now, "a deadline is later than the one before");
                now = next;
            }
        }
        // The bucket is full at first; then a third of a second each.
        assert_eq!(starts[..4], [0, 0, 0, 334]);
        for pair in starts.windows(4).skip(3) {
            assert!(pair[3] - pair[0] >= 999, "{pair:?}");
        }
    }
}
