//! Why processes are busy.

use crate::why::Cause;
use serde::Serialize;

/// Parts of a busy time, from 0 to 1.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Why {
    /// The part that computed.
    pub(crate) cpu: Option<f64>,
    /// The part that stood in the run queue.
    pub(crate) queue: Option<f64>,
    /// The rest.
    pub(crate) wait: Option<f64>,
    /// The causes of the other waits. The sum is at most `wait`.
    pub(crate) causes: Vec<(Cause, f64)>,
    /// This user may not see these causes.
    pub(crate) is_denied: bool,
}

/// Times in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) busy: f64,
    pub(super) cpu: f64,
    /// `None` if it can't be read.
    pub(super) queue: Option<f64>,
}

/// How often each cause was seen.
pub(super) type Sights = Vec<(Cause, u32)>;

impl Why {
    /// Divides a busy time. `sights`: causes of waiting that were seen.
    pub(super) fn of(times: Times, sights: &Sights, is_denied: bool) -> Why {
        let Times { busy, cpu, queue } = times;
        // A moment is too short to tell.
        if busy < 0.001 {
            return Why::default();
        }
        // Clocks are read one after the other, so the parts may exceed the whole by a little.
        let cpu = (cpu / busy).clamp(0.0, 1.0);
        let queue = queue.map(|queue| (queue / busy).clamp(0.0, 1.0 - cpu));
        let wait = 1.0 - cpu - queue.unwrap_or(0.0);
        let all: u32 = sights.iter().map(|(_, count)| *count).sum();
        let part = |count: u32| wait * f64::from(count) / f64::from(all.max(1));
        let causes = sights.iter().map(|(cause, count)| (*cause, part(*count)));
        Why {
            cpu: Some(cpu),
            queue,
            wait: Some(wait),
            causes: causes.collect(),
            is_denied: is_denied && all == 0,
        }
    }

    /// Returns the parts in words, the largest first: `cpu 61%, database 30%, queue 9%`.
    pub(crate) fn words(&self) -> Option<String> {
        let mut parts: Vec<(&str, f64)> = Vec::new();
        parts.push(("cpu", self.cpu?));
        parts.extend(self.queue.map(|part| ("run queue", part)));
        match self.causes.is_empty() {
            true => parts.extend(self.wait.map(|part| (self.waiting(), part))),
            false => parts.extend(self.causes.iter().map(|(cause, part)| (cause.name(), *part))),
        }
        parts.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        let percent = |part: f64| (part * 100.0).round();
        let shown = parts.iter().filter(|(_, part)| percent(*part) >= 1.0);
        let shown: Vec<String> = shown
            .map(|(name, part)| format!("{name} {:.0}%", percent(*part)))
            .collect();
        Some(shown.join(", "))
    }

    fn waiting(&self) -> &'static str {
        if self.is_denied {
            "waits (no rights)"
        } else {
            "waits"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(busy: f64, cpu: f64, queue: Option<f64>) -> Times {
        Times { busy, cpu, queue }
    }

    #[test]
    fn a_busy_time_is_divided() {
        let sights = vec![(Cause::Database, 3), (Cause::Disk, 1)];
        let why = Why::of(times(2.0, 0.4, Some(0.2)), &sights, false);
        assert_eq!(
            why.words().as_deref(),
            Some("database 53%, cpu 20%, disk 18%, run queue 10%")
        );
        let why = Why::of(times(2.0, 0.5, None), &Vec::new(), false);
        assert_eq!(why.words().as_deref(), Some("waits 75%, cpu 25%"));
        let why = Why::of(times(2.0, 0.5, None), &Vec::new(), true);
        assert_eq!(why.words().as_deref(), Some("waits (no rights) 75%, cpu 25%"));
    }

    #[test]
    fn parts_are_never_more_than_the_whole() {
        let why = Why::of(times(1.0, 1.3, Some(0.5)), &vec![(Cause::Lock, 1)], false);
        assert_eq!((why.cpu, why.queue, why.wait), (Some(1.0), Some(0.0), Some(0.0)));
        assert_eq!(why.words().as_deref(), Some("cpu 100%"));
    }

    #[test]
    fn a_pool_that_is_idle_has_no_reason() {
        assert_eq!(Why::of(times(0.0, 0.1, None), &Vec::new(), true).words(), None);
    }
}
