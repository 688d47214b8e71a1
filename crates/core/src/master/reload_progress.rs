//! The progress of a reload: complete when every new generation is up or failed, and no old one takes work.

use super::action::Fact;
use super::event::{GenerationId, PoolId};
use super::reload_plan::Changes;
use forkyard_protocol::control::{Cause, Reloaded};
use forkyard_protocol::skipped::Skipped;
use std::collections::{BTreeMap, BTreeSet};

/// The most pool names in one log line.
const MOST_NAMES: usize = 10;

#[derive(Debug, Default)]
pub struct ReloadProgress {
    report: Reloaded,
    waits: BTreeMap<GenerationId, Awaited>,
    /// Replaced generations. The exit of idle workers is awaited, since they may still take a connection.
    replaced: BTreeSet<GenerationId>,
}

#[derive(Debug)]
struct Awaited {
    pool: PoolId,
    name: String,
    /// Why it replaces another; `None`: a new pool.
    reason: Option<String>,
    serves: bool,
}

impl ReloadProgress {
    /// Returns the progress of a reload with these changes.
    pub fn new(changes: Changes) -> ReloadProgress {
        let awaited = |pool, name, reason: Option<&str>, serves| Awaited {
            pool,
            name,
            reason: reason.map(str::to_owned),
            serves,
        };
        let lost = "clients could not reach its socket";
        let replaced = changes.replaced.into_iter();
        let replaced =
            replaced.map(|(pool, id, name, why)| (id, awaited(pool, name, Some(&why.to_string()), false)));
        let bound_again = changes.bound_again.into_iter();
        let bound_again = bound_again.map(|(pool, id, name)| (id, awaited(pool, name, Some(lost), true)));
        let added = changes.added.into_iter();
        let added = added.map(|(pool, id, name)| (id, awaited(pool, name, None, true)));
        let failed = changes.failed.into_iter();
        ReloadProgress {
            report: Reloaded {
                replaced: Vec::new(),
                failed: failed.map(|(pool, reason)| Cause { pool, reason }).collect(),
                added: Vec::new(),
                kept: changes.kept,
                removed: changes.removed,
                skipped: changes.skipped,
            },
            waits: bound_again.chain(replaced).chain(added).collect(),
            replaced: BTreeSet::new(),
        }
    }

    /// Records a fact. `serving`: the pool's serving generation so far. `said`: the failure report and last output, as
    /// the end of a sentence.
    pub fn note(
        &mut self,
        fact: Fact,
        serving: impl FnOnce(PoolId) -> Option<GenerationId>,
        said: impl FnOnce(GenerationId) -> String,
    ) {
        match fact {
            Fact::Serves(id) => {
                if let Some(awaited) = self.waits.get_mut(&id) {
                    awaited.serves = true;
                    self.replaced
                        .extend(serving(awaited.pool).filter(|before| *before != id));
                }
            }
            Fact::Up(id) => {
                let Some(Awaited { name, reason, .. }) = self.waits.remove(&id) else {
                    return;
                };
                match reason {
                    Some(reason) => self.report.replaced.push(Cause { pool: name, reason }),
                    None => self.report.added.push(name),
                }
            }
            Fact::Waits(id) => self.fail(id, |_| {
                "process.max leaves no room for a worker; requests wait until there is one".to_owned()
            }),
            Fact::Fails(id) => self.fail(id, |serves| {
                let said = said(id);
                match serves {
                    true => format!("no worker came up{said}; requests are refused until a retry succeeds"),
                    false => {
                        format!("no new worker came up{said}; the old workers serve until a retry succeeds")
                    }
                }
            }),
            Fact::Shares(_) | Fact::Gone(_) => {}
        }
    }

    /// Stops waiting for a dropped generation.
    pub fn forget(&mut self, id: GenerationId) {
        self.fail(id, |_| "it was abandoned".to_owned());
    }

    fn fail(&mut self, id: GenerationId, reason: impl FnOnce(bool) -> String) {
        if let Some(Awaited { name, serves, .. }) = self.waits.remove(&id) {
            let reason = reason(serves);
            self.report.failed.push(Cause { pool: name, reason });
        }
    }

    /// Whether it is complete. `takes_up`: whether a generation's workers take connections; called until the first
    /// `true`.
    pub fn is_done(&mut self, takes_up: impl Fn(GenerationId) -> bool) -> bool {
        if !self.waits.is_empty() {
            return false;
        }
        while let Some(first) = self.replaced.first().copied() {
            if takes_up(first) {
                return false;
            }
            self.replaced.remove(&first);
        }
        true
    }

    /// Returns the log line of the result.
    pub fn line(&self) -> String {
        line(&self.report)
    }

    pub fn into_report(self) -> Reloaded {
        self.report
    }
}

/// Whether every pool is as configured.
pub fn is_complete(report: &Reloaded) -> bool {
    report.failed.is_empty() && report.skipped.is_empty()
}

fn line(report: &Reloaded) -> String {
    let plain = |list: &[String]| list.to_vec();
    let causes = |list: &[Cause]| list.iter().map(|cause| cause.pool.clone()).collect();
    let skipped = report.skipped.iter().map(Skipped::name).collect();
    let parts: [(&str, Vec<String>); 6] = [
        ("replaced", causes(&report.replaced)),
        ("added", plain(&report.added)),
        ("removed", plain(&report.removed)),
        ("nothing changed for", plain(&report.kept)),
        ("failed, and tried again", causes(&report.failed)),
        ("skipped", skipped),
    ];
    let mut line = "reload done".to_owned();
    for (what, names) in parts {
        line += &match names.len() {
            0 => String::new(),
            count if count > MOST_NAMES => format!("; {what}: {count} pools"),
            _ => format!("; {what}: {}", names.join(", ")),
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use super::super::reload_diff::Reason;
    use super::*;

    const OLD: GenerationId = GenerationId(1);
    const NEW: GenerationId = GenerationId(2);

    fn replacing() -> ReloadProgress {
        ReloadProgress::new(Changes {
            replaced: vec![(PoolId(1), NEW, "www".to_owned(), Reason::Files)],
            kept: vec!["api".to_owned()],
            ..Changes::default()
        })
    }

    fn note(progress: &mut ReloadProgress, fact: Fact) {
        progress.note(fact, |_| Some(OLD), |_| ", having said \"no\"".to_owned());
    }

    #[test]
    fn it_is_done_when_the_new_workers_serve_and_the_old_take_up_nothing() {
        let mut progress = replacing();
        assert!(!progress.is_done(|_| false));
        note(&mut progress, Fact::Serves(NEW));
        assert!(!progress.is_done(|_| false), "it has no worker yet");
        note(&mut progress, Fact::Up(NEW));
        assert!(!progress.is_done(|id| id == OLD));
        assert!(progress.is_done(|_| false));
        let report = progress.into_report();
        assert_eq!(report.replaced[0].reason, "files that PHP starts from changed");
        assert_eq!(
            line(&report),
            "reload done; replaced: www; nothing changed for: api"
        );
        assert!(is_complete(&report));
    }

    #[test]
    fn of_many_that_take_up_requests_one_is_looked_at() {
        let replaced = |number| {
            (
                PoolId(number),
                GenerationId(number),
                number.to_string(),
                Reason::Files,
            )
        };
        let mut progress = ReloadProgress::new(Changes {
            replaced: (0..1000).map(replaced).collect(),
            ..Changes::default()
        });
        for number in 0..1000 {
            let before = |pool: PoolId| Some(GenerationId(pool.0 + 1000));
            progress.note(Fact::Serves(GenerationId(number)), before, |_| String::new());
            progress.note(Fact::Up(GenerationId(number)), before, |_| String::new());
        }
        let looks = std::cell::Cell::new(0);
        for least in 1000..2000 {
            let takes_up = |id: GenerationId| {
                looks.set(looks.get() + 1);
                id.0 >= least
            };
            assert!(!progress.is_done(takes_up));
        }
        assert!(looks.get() < 3000, "{}", looks.get());
        assert!(progress.is_done(|_| false));
    }

    #[test]
    fn a_generation_that_fails_is_told_once_and_is_waited_for_no_more() {
        let mut progress = replacing();
        note(&mut progress, Fact::Fails(NEW));
        note(&mut progress, Fact::Fails(NEW));
        progress.forget(NEW);
        assert!(progress.is_done(|_| true));
        let report = progress.into_report();
        assert_eq!(report.failed.len(), 1);
        assert_eq!(
            report.failed[0].reason,
            "no new worker came up, having said \"no\"; the old workers serve until a retry succeeds"
        );
        assert!(!is_complete(&report));
    }

    #[test]
    fn a_pool_that_begins_is_added_when_it_has_a_worker() {
        let added = || {
            ReloadProgress::new(Changes {
                added: vec![(PoolId(1), NEW, "new".to_owned())],
                ..Changes::default()
            })
        };
        let mut progress = added();
        assert!(!progress.is_done(|_| false));
        note(&mut progress, Fact::Up(NEW));
        assert!(progress.is_done(|_| false));
        assert_eq!(line(&progress.into_report()), "reload done; added: new");
        for (fact, reason) in [
            (
                Fact::Fails(NEW),
                "no worker came up, having said \"no\"; requests are refused until a retry succeeds",
            ),
            (
                Fact::Waits(NEW),
                "process.max leaves no room for a worker; requests wait until there is one",
            ),
        ] {
            let mut progress = added();
            note(&mut progress, fact);
            note(&mut progress, Fact::Up(NEW));
            assert!(progress.is_done(|_| false));
            let report = progress.into_report();
            assert_eq!(report.failed[0].reason, reason);
            assert!(report.added.is_empty() && !is_complete(&report));
        }
    }

    #[test]
    fn a_generation_that_serves_at_once_and_gets_no_worker_has_failed() {
        let mut progress = replacing();
        note(&mut progress, Fact::Serves(NEW));
        note(&mut progress, Fact::Fails(NEW));
        assert!(progress.is_done(|_| false));
        let report = progress.into_report();
        assert!(report.replaced.is_empty());
        assert_eq!(
            report.failed[0].reason,
            "no worker came up, having said \"no\"; requests are refused until a retry succeeds"
        );
    }

    #[test]
    fn a_generation_that_is_given_up_is_not_waited_for() {
        let mut progress = replacing();
        progress.forget(OLD);
        assert!(!progress.is_done(|_| false));
        progress.forget(NEW);
        assert!(progress.is_done(|_| false));
        assert_eq!(
            line(&progress.into_report()),
            "reload done; nothing changed for: api; failed, and tried again: www"
        );
    }

    #[test]
    fn many_names_become_a_number() {
        let names = (0..MOST_NAMES).map(|number| number.to_string());
        let mut report = Reloaded {
            added: names.collect(),
            ..Reloaded::default()
        };
        assert_eq!(line(&report), "reload done; added: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9");
        report.added.push("one more".to_owned());
        assert_eq!(line(&report), "reload done; added: 11 pools");
    }
}
