//! The number itself. It rises at once. It falls at once for memory and for slow servers, and later for processors.

use super::{Second, workers};

/// Seconds until a number that is too large for the processors falls.
const TOO_LARGE: f64 = 10.0;
/// Seconds without growth after the kernel reported a lack of memory.
const PRESSED: f64 = 10.0;

#[derive(Debug)]
pub(super) struct Number {
    most: u32,
    too_large_for: f64,
    pressed_for: f64,
}

impl Number {
    pub(super) fn new(most: u32) -> Number {
        Number {
            most: most.max(1),
            too_large_for: 0.0,
            pressed_for: 0.0,
        }
    }

    pub(super) fn most(&self) -> u32 {
        self.most
    }

    pub(super) fn is_pressed(&self) -> bool {
        self.pressed_for > 0.0
    }

    pub(super) fn second(
        &mut self,
        by_memory: f64,
        by_processors: f64,
        by_waiting: f64,
        second: &Second,
    ) -> u32 {
        let now = f64::from(self.most);
        let want = by_memory.min(by_processors).min(by_waiting).max(1.0);
        self.pressed_for = match second.pressure {
            true => PRESSED,
            false => (self.pressed_for - second.elapsed()).max(0.0),
        };
        if second.pressure {
            self.most = workers(want.min(f64::from(second.live.saturating_sub(1))));
            self.too_large_for = 0.0;
            return self.most;
        }
        let rises = want > 1.1 * now || (want > now && now < 10.0);
        let is_dangerous = by_memory < now || by_waiting < now;
        self.too_large_for = match want < 0.9 * now {
            true => self.too_large_for + second.elapsed(),
            false => 0.0,
        };
        if is_dangerous || self.too_large_for > TOO_LARGE || (rises && !self.is_pressed()) {
            self.most = workers(want);
            self.too_large_for = 0.0;
        }
        self.most
    }
}
