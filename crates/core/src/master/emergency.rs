//! Emergency restart: many crashes in a short time suggest damaged shared state, such as PHP's OPcache.

use crate::config::EmergencyRestart;
use forkyard_base::tick::Tick;
use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Emergency {
    rule: Option<EmergencyRestart>,
    crashes: VecDeque<Tick>,
}

impl Emergency {
    /// Sets the rule and forgets earlier crashes, which were of processes that leave.
    pub(super) fn set_rule(&mut self, rule: Option<EmergencyRestart>) {
        self.rule = rule;
        self.crashes.clear();
    }

    /// Records a crash. Returns the rule if exceeded, unless new processes start already (`is_changing`).
    pub(super) fn crashed(&mut self, now: Tick, is_changing: bool) -> Option<EmergencyRestart> {
        let rule = self.rule?;
        self.crashes.push_back(now);
        while self
            .crashes
            .front()
            .is_some_and(|first| now.since(*first) > rule.interval)
            || self.crashes.len() > rule.threshold as usize
        {
            self.crashes.pop_front();
        }
        let is_reached = self.crashes.len() >= rule.threshold as usize && !is_changing;
        if is_reached {
            self.crashes.clear();
        }
        is_reached.then_some(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const RULE: EmergencyRestart = EmergencyRestart {
        threshold: 3,
        interval: Duration::from_secs(10),
    };

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    fn emergency() -> Emergency {
        let mut emergency = Emergency::default();
        emergency.set_rule(Some(RULE));
        emergency
    }

    #[test]
    fn so_many_in_so_short_a_time() {
        let mut emergency = emergency();
        assert_eq!(emergency.crashed(at(100), false), None);
        assert_eq!(emergency.crashed(at(105), false), None);
        assert_eq!(emergency.crashed(at(111), false), None, "the first is forgotten");
        assert_eq!(emergency.crashed(at(112), false), Some(RULE));
        assert_eq!(emergency.crashed(at(112), false), None, "counting begins anew");
    }

    #[test]
    fn a_machine_that_has_just_booted_is_no_emergency() {
        assert_eq!(emergency().crashed(at(1), false), None);
    }

    #[test]
    fn new_processes_are_given_their_time() {
        let mut emergency = emergency();
        for second in 0..20 {
            assert_eq!(emergency.crashed(at(second / 10), true), None);
        }
        assert_eq!(emergency.crashed(at(2), false), Some(RULE));
    }

    #[test]
    fn without_a_rule_nothing_is_counted() {
        let mut emergency = emergency();
        emergency.set_rule(None);
        assert_eq!(emergency.crashed(at(1), false), None);
        assert!(emergency.crashes.is_empty());
    }
}
