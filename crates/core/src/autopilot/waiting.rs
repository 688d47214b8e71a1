//! How many workers a server behind the application, such as a database, can serve. The pool finds out by a trial with fewer.
//!
//! ```text
//!              slow, or stuck                     as much work
//!    Open ───────────────────────▶ trial of 6 s ───────────────▶ fewer workers
//!     ▲                             │        │                       │
//!     │        less work            │        │ load goes             │ calm and usual
//!     └─ (waits longer and longer) ─┘        └── the limit before    └── a tenth more
//! ```

use super::reason::Reason;
use super::usual::Usual;
use super::{MOST, Second, workers};
use serde::{Deserialize, Serialize};

/// Seconds of a trial after the first one.
const TRIAL: u32 = 5;
/// The mean of the work covers this many seconds.
const MEAN_OF: usize = 4;
/// Seconds of a full pool before a trial.
const FEWEST: usize = 2;
const FIRST_PAUSE: f64 = 30.0;
const LONGEST_PAUSE: f64 = 600.0;
/// Seconds of calm until the usual waits are known.
const CALM: u32 = 20;

/// The state before a trial: work in a second, limit, ln(wait / usual wait), workers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Trial {
    work: f64,
    limit: Option<f64>,
    left: u32,
    log_slower: f64,
    workers: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    /// None: no limit.
    limit: Option<f64>,
    /// Seconds of calm, up to [`CALM`].
    calm: u32,
    #[serde(skip)]
    trial: Option<Trial>,
    /// Seconds in a row.
    #[serde(skip)]
    slow: u32,
    #[serde(skip)]
    usual: u32,
    #[serde(skip)]
    stuck: u32,
    /// Seconds without a trial.
    #[serde(skip)]
    hold: f64,
    /// Seconds without a trial after the next failed one.
    pause: f64,
    #[serde(skip)]
    last_one_paid: bool,
    /// The most work since the limit exists: small losses of many steps must not add up.
    #[serde(skip)]
    best: f64,
    #[serde(skip)]
    work: Vec<f64>,
    #[serde(skip)]
    pub(super) why: Reason,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting {
            limit: None,
            calm: 0,
            trial: None,
            slow: 0,
            usual: 0,
            stuck: 0,
            hold: 0.0,
            pause: FIRST_PAUSE,
            last_one_paid: false,
            best: 0.0,
            work: Vec::new(),
            why: Reason::Needed,
        }
    }
}

impl Waiting {
    /// `now`: the present number. `others`: what memory and processors allow.
    pub(super) fn second(&mut self, second: &Second, usual: &mut Usual, work: f64, now: f64, others: f64) {
        let slower = usual.times_slower();
        let full = second.full() > 0.5;
        // If requests wait for processors, processors are the shortage, and nothing behind the workers is.
        let is_short = full && !second.lacks_processors();
        // Only a full pool shows how much can be done.
        if second.full() < 0.1 {
            self.work.clear();
        } else if full {
            let old = (self.work.len() + 1).saturating_sub(MEAN_OF);
            self.work.drain(..old);
            self.work.push(work);
        }
        let mean = self.work.iter().sum::<f64>() / self.work.len().max(1) as f64;
        count(&mut self.slow, is_short && slower > 1.3);
        count(&mut self.usual, full && slower < 1.12);
        if second.full() < 0.1 && work > 0.0 {
            self.calm = (self.calm + 1).min(CALM);
        }
        count(&mut self.stuck, is_short && self.calm < CALM);
        self.hold = (self.hold - second.elapsed()).max(0.0);
        if self.trial.is_none() {
            match self.limit {
                None => self.best = 0.0,
                Some(_) if full && self.work.len() == MEAN_OF => self.best = self.best.max(mean),
                Some(_) => (),
            }
        }
        let live = now.min(f64::from(second.live));
        match self.trial {
            Some(trial) if !full => self.take_back(trial),
            Some(trial) if trial.left > 0 => {
                self.trial = Some(Trial {
                    left: trial.left - 1,
                    ..trial
                });
            }
            Some(trial) => self.judge(trial, mean, usual),
            None if self.hold > 0.0 => (),
            None => self.may_begin(mean, usual.slower, slower, live, others),
        }
    }

    fn may_begin(&mut self, mean: f64, log_slower: f64, slower: f64, live: f64, others: f64) {
        let can_try = live > 2.0 && self.work.len() >= FEWEST;
        let part = if self.slow >= 2 && can_try {
            let least: f64 = if self.last_one_paid { 0.5 } else { 0.75 };
            Some((1.1 / slower).max(least))
        } else if self.stuck >= 10 && can_try {
            Some(0.75)
        } else {
            None
        };
        if let Some(part) = part {
            self.trial = Some(Trial {
                work: mean,
                limit: self.limit,
                left: TRIAL,
                log_slower,
                workers: workers(live),
            });
            self.why = Reason::Trial;
            self.limit = Some((live * part).max(2.0).ceil());
            (self.slow, self.stuck) = (0, 0);
            self.work.clear();
        } else if self.usual >= 3
            && self.calm >= CALM
            && let Some(limit) = self.limit
            && limit < others
        {
            self.limit = Some((limit * 1.1 + 1.0).floor());
            self.usual = 0;
        }
    }

    /// The load went before there was an answer.
    fn take_back(&mut self, trial: Trial) {
        self.trial = None;
        self.why = Reason::Needed;
        let before = trial.limit.unwrap_or(f64::MAX);
        self.limit = self.limit.map(|limit| limit.max(before.min(limit * 1.3)));
    }

    fn judge(&mut self, trial: Trial, mean: f64, usual: &mut Usual) {
        self.trial = None;
        self.last_one_paid = mean >= 0.93 * trial.work.max(self.best);
        if self.last_one_paid {
            self.why = Reason::Slower {
                times: trial.log_slower.clamp(0.0, 20.0).exp(),
                workers: trial.workers,
            };
            return;
        }
        self.hold = self.pause;
        self.pause = (self.pause * 2.0).min(LONGEST_PAUSE);
        // The trial showed no gain, so these waits become the usual ones, and the limit before the trial returns.
        self.limit = trial.limit;
        usual.accept(trial.log_slower.max(usual.slower));
        self.calm = CALM;
        self.why = Reason::Needed;
    }

    pub(super) fn most(&self) -> f64 {
        self.limit
            .map_or(f64::from(MOST), |limit| limit.clamp(1.0, f64::from(MOST)))
    }
}

fn count(seconds: &mut u32, is_so: bool) {
    *seconds = if is_so { seconds.saturating_add(1) } else { 0 };
}
