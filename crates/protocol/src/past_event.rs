//! What happened to the daemon and its pools, for `forkyard events` and the next master.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The longest text of an event, in bytes.
pub const LONGEST_TEXT: usize = 400;

/// One event, or several equal ones that came within a second of each other.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastEvent {
    /// Later events have higher numbers, even if the clock was set back.
    pub number: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// The time of the last of several events, in milliseconds since 1970.
    pub last_ms: Option<u64>,
    /// How often it happened.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub count: u64,
    #[serde(flatten)]
    pub what: Happening,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happening {
    pub kind: EventKind,
    /// `None`: the whole daemon.
    pub pool: Option<String>,
    /// The user of the pool's processes, who may read the event. `None`: only root and the daemon's user may.
    pub user: Option<u32>,
    pub text: String,
    /// What differs in each of several equal events, such as the process id; of the last one.
    pub detail: Option<String>,
    /// How long it took, in milliseconds.
    pub took_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The daemon started.
    Start,
    /// Another master followed one that was killed.
    Takeover,
    /// The program on disk took over.
    Upgrade,
    UpgradeFailed,
    /// The configuration was read again and applied, at least to some pools.
    Reload,
    /// The configuration was read again and rejected.
    ReloadRefused,
    /// A pool gets new processes without a reload.
    Restart,
    /// A deployment ended: the pool serves the new release, or the one before.
    Deployment,
    /// Too many crashes: every pool gets new processes.
    EmergencyRestart,
    Stop,
    Drain,
    LogsReopened,
    /// A worker ended by a signal or with an exit code other than 0.
    WorkerDied,
    PreloaderDied,
    /// A process of a program that speaks HTTP ended by itself.
    ProgramDied,
    /// A router, an inspector, a reporter or the process that keeps jobs ended by itself.
    HelperDied,
    StartFailed,
    /// A request exceeded `request_terminate_timeout`.
    TimedOut,
    /// A worker did not finish in time and got a signal.
    Overdue,
    /// The pool is saturated: every one of its `max_children` is needed.
    MaxChildren,
    /// The pool needs fewer than `max_children` again.
    MaxChildrenOver,
    ProcessMax,
    /// No worker is left and none can be made.
    NoWorker,
    /// Workers can't be made or end early, so the next try waits.
    BackOff,
    /// Workers crash so fast that the next one waits.
    CrashingFast,
    /// Many workers had to be made at once.
    SeemsBusy,
    /// A kind that a newer program has written.
    #[serde(other)]
    Other,
}

impl EventKind {
    /// Returns the kind as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Start => "start",
            EventKind::Takeover => "takeover",
            EventKind::Upgrade => "upgrade",
            EventKind::UpgradeFailed => "upgrade-failed",
            EventKind::Reload => "reload",
            EventKind::ReloadRefused => "reload-refused",
            EventKind::Restart => "restart",
            EventKind::Deployment => "deployment",
            EventKind::EmergencyRestart => "emergency-restart",
            EventKind::Stop => "stop",
            EventKind::Drain => "drain",
            EventKind::LogsReopened => "logs-reopened",
            EventKind::WorkerDied => "worker-died",
            EventKind::PreloaderDied => "preloader-died",
            EventKind::ProgramDied => "program-died",
            EventKind::HelperDied => "helper-died",
            EventKind::StartFailed => "start-failed",
            EventKind::TimedOut => "timed-out",
            EventKind::Overdue => "overdue",
            EventKind::MaxChildren => "max-children",
            EventKind::MaxChildrenOver => "max-children-over",
            EventKind::ProcessMax => "process-max",
            EventKind::NoWorker => "no-worker",
            EventKind::BackOff => "back-off",
            EventKind::CrashingFast => "crashing-fast",
            EventKind::SeemsBusy => "seems-busy",
            EventKind::Other => "other",
        }
    }
}

impl Happening {
    /// An event of the whole daemon.
    pub fn of_daemon(kind: EventKind, text: impl Into<String>) -> Happening {
        Happening {
            kind,
            pool: None,
            user: None,
            text: text.into(),
            detail: None,
            took_ms: None,
        }
    }

    /// An event of a pool whose processes run as this user.
    pub fn of_pool(kind: EventKind, pool: &str, user: Option<u32>, text: impl Into<String>) -> Happening {
        Happening {
            pool: Some(pool.to_owned()),
            user,
            ..Happening::of_daemon(kind, text)
        }
    }

    #[must_use]
    pub fn with_detail(self, detail: impl Into<String>) -> Happening {
        Happening {
            detail: Some(detail.into()),
            ..self
        }
    }

    #[must_use]
    pub fn lasting(self, took_ms: u64) -> Happening {
        Happening {
            took_ms: Some(took_ms),
            ..self
        }
    }
}

fn once() -> u64 {
    1
}

fn is_once(count: &u64) -> bool {
    *count == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_documented() {
        let event = PastEvent {
            number: 7,
            time_ms: 1_700_000_000_123,
            last_ms: None,
            count: 1,
            what: Happening::of_pool(EventKind::WorkerDied, "www", Some(33), "on signal 11 (SIGSEGV)")
                .with_detail("child 5"),
        };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(
            text,
            r#"{"number":7,"time_ms":1700000000123,"kind":"worker-died","pool":"www","user":33,"text":"on signal 11 (SIGSEGV)","detail":"child 5"}"#
        );
        assert_eq!(serde_json::from_str::<PastEvent>(&text).unwrap(), event);
        let newer = text.replace("worker-died", "moon-risen");
        let newer: PastEvent = serde_json::from_str(&newer).unwrap();
        assert_eq!(newer.what.kind, EventKind::Other);
    }

    #[test]
    fn a_kind_has_its_name_of_json() {
        for kind in [
            EventKind::Start,
            EventKind::MaxChildrenOver,
            EventKind::Other,
            EventKind::TimedOut,
            EventKind::LogsReopened,
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
