//! Whether the store can be used, and why not.

/// ```text
///          its queues and schedules are loaded          failed
/// Opening ─────────────────────────────────────> Open <────────> Failing
///                                                         well
/// ```
#[derive(Debug)]
enum Phase {
    /// `why`: a failure, or the time limit has passed.
    Opening {
        since_ms: u64,
        why: Option<String>,
    },
    Open,
    Failing {
        why: String,
    },
}

#[derive(Debug)]
pub(crate) struct StoreState {
    phase: Phase,
    /// This machine's clock minus the store's, which schedules use.
    pub(crate) ahead_ms: i64,
    pub(crate) clean_due_ms: u64,
}

impl StoreState {
    pub(crate) fn new(now_ms: u64) -> StoreState {
        StoreState {
            phase: Phase::Opening {
                since_ms: now_ms,
                why: None,
            },
            ahead_ms: 0,
            clean_due_ms: 0,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Whether the paused queues and the schedules are known.
    pub(crate) fn is_loaded(&self) -> bool {
        !matches!(self.phase, Phase::Opening { .. })
    }

    pub(crate) fn why_not(&self) -> Option<&str> {
        match &self.phase {
            Phase::Opening { why, .. } => why.as_deref(),
            Phase::Open => None,
            Phase::Failing { why } => Some(why),
        }
    }

    /// The time limit of opening the store. `None`: it is open, or known to fail.
    pub(crate) fn opening_limit_ms(&self, limit_ms: u64) -> Option<u64> {
        match self.phase {
            Phase::Opening { since_ms, why: None } => Some(since_ms.saturating_add(limit_ms)),
            _ => None,
        }
    }

    pub(crate) fn opened(&mut self) {
        if self.why_not().is_some() {
            log::warn!("jobs: the store is open now");
        }
        self.well();
    }

    pub(crate) fn unopened(&mut self, why: String) {
        if self.why_not() != Some(&why) {
            log::error!("jobs: the store can't be opened: {why}; trying again");
            self.failed(why);
        }
    }

    pub(crate) fn failed(&mut self, reason: String) {
        match &mut self.phase {
            Phase::Opening { why, .. } => *why = Some(reason),
            phase => *phase = Phase::Failing { why: reason },
        }
    }

    pub(crate) fn well(&mut self) {
        match &mut self.phase {
            Phase::Opening { why, .. } => *why = None,
            phase => *phase = Phase::Open,
        }
    }

    pub(crate) fn loaded(&mut self) {
        self.phase = Phase::Open;
    }
}
