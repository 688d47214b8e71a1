//! Finds the cause of a worker's death at work.

use super::event::StopRequest;
use crate::spawn::error::Ended;
use forkyard_protocol::counters::ExitCause;
use serde::{Deserialize, Serialize};

const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

/// The cause of a worker's death.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CrashCause {
    /// It ended itself.
    Exit,
    /// A signal killed it.
    Signal {
        /// `process 12 (kill), user id 0`, `itself`.
        sender: Option<String>,
    },
    /// Its stack overflowed.
    StackOverflow,
    /// Its request exceeded its time limit.
    TimeLimit,
    /// It exceeded `memory_limit`.
    MemoryLimit,
    /// The kernel killed it because memory ran out.
    OutOfMemory,
    /// It did not exit in time after the master had asked for it.
    TooLate,
    /// Another process is its parent.
    Unknown,
}

/// The master's reason for ending a worker at work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    TimeLimit,
    /// It did not exit in time.
    TooLate,
}

/// The facts about a death.
#[derive(Debug, Clone)]
pub struct Evidence {
    pub ended: Ended,
    pub is_at_work: bool,
    /// The signal that the master sent, and the exceeded limit, if any.
    pub told: Option<StopRequest>,
    pub by: Option<EndedBy>,
    /// The cause that the worker itself recorded.
    pub said: Option<ExitCause>,
    /// A signal and its sender, if the worker could record them.
    pub sent: Option<(i32, String)>,
    /// It recorded a stack overflow.
    pub is_stack_full: bool,
    /// The kernel has just killed a process of the control group because memory ran out.
    pub is_out_of_memory: bool,
}

impl CrashCause {
    /// Returns the cause, or `None` after a regular exit or an operator's command.
    pub fn of(evidence: Evidence) -> Option<CrashCause> {
        let Evidence { ended, said, .. } = evidence;
        let is_normal = matches!(ended, Ended::Code(0) | Ended::Unknown);
        if said == Some(ExitCause::Memory) && is_normal {
            return Some(CrashCause::MemoryLimit);
        }
        if !evidence.is_at_work {
            return None;
        }
        let is_ours = is_normal
            || matches!(ended, Ended::Code(_))
            || matches!(
                ended,
                Ended::Signal {
                    number: SIGKILL | SIGTERM,
                    ..
                }
            );
        let is_told = matches!(evidence.told, Some(StopRequest::Terminate | StopRequest::Kill));
        match evidence.by {
            Some(EndedBy::TimeLimit) if is_ours => return Some(CrashCause::TimeLimit),
            Some(EndedBy::TooLate) if is_ours => return Some(CrashCause::TooLate),
            None if is_ours && is_told => return None,
            Some(_) | None => {}
        }
        match ended {
            Ended::Code(_) | Ended::Unknown if said == Some(ExitCause::Terminated) => {
                Some(CrashCause::TimeLimit)
            }
            // The worker recorded the cause.
            Ended::Code(_) | Ended::Unknown if said.is_some() => None,
            Ended::Code(0) if evidence.told.is_some() => None,
            Ended::Code(_) => Some(CrashCause::Exit),
            Ended::Unknown => Some(CrashCause::Unknown),
            Ended::Signal { number: SIGKILL, .. } if evidence.is_out_of_memory => {
                Some(CrashCause::OutOfMemory)
            }
            Ended::Signal { number: SIGSEGV, .. } if evidence.is_stack_full => {
                Some(CrashCause::StackOverflow)
            }
            Ended::Signal { number, .. } => {
                let sent = evidence.sent.filter(|(sent, _)| *sent == number);
                Some(CrashCause::Signal {
                    sender: sent.map(|(_, sender)| sender),
                })
            }
        }
    }

    /// Returns a short name for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            CrashCause::Exit => "exit",
            CrashCause::Signal { .. } => "signal",
            CrashCause::StackOverflow => "stack_overflow",
            CrashCause::TimeLimit => "time_limit",
            CrashCause::MemoryLimit => "memory_limit",
            CrashCause::OutOfMemory => "out_of_memory",
            CrashCause::TooLate => "too_late",
            CrashCause::Unknown => "unknown",
        }
    }

    /// Returns the cause in words.
    pub fn describe(&self, ended: Ended) -> String {
        match self {
            CrashCause::Exit => format!("{} during the request", ended.describe()),
            CrashCause::Signal { sender: Some(sender) } => format!("{}, sent by {sender}", ended.describe()),
            CrashCause::Signal { sender: None }
                if matches!(
                    ended,
                    Ended::Signal {
                        number: SIGKILL | SIGTERM,
                        ..
                    }
                ) =>
            {
                format!("{}, sender unknown", ended.describe())
            }
            CrashCause::Signal { sender: None } => ended.describe(),
            CrashCause::StackOverflow => format!("stack overflow: {}", ended.describe()),
            CrashCause::TimeLimit => "time limit: the request took too long".to_owned(),
            CrashCause::MemoryLimit => "memory_limit: the worker used more memory".to_owned(),
            CrashCause::OutOfMemory => "out of memory: killed by the kernel".to_owned(),
            CrashCause::TooLate => "told to exit, and the request did not finish in time".to_owned(),
            CrashCause::Unknown => "ended, how is known only to its parent".to_owned(),
        }
    }

    /// Returns the problem and a remedy.
    pub fn words(&self, ended: Ended) -> (&'static str, &'static str) {
        match self {
            CrashCause::StackOverflow => (
                "Its stack was full: most often functions call each other without an end.",
                "Look for the recursion in the script; of PHP's own functions zend.max_allowed_stack_size (8.3) makes it an error.",
            ),
            CrashCause::TimeLimit => (
                "The request took longer than its time limit, and the worker was ended.",
                "Make the request faster, or raise request_terminate_timeout.",
            ),
            CrashCause::MemoryLimit => (
                "The worker used more memory than memory_limit, as was measured after this request, and exited. No request was lost.",
                "Let the script use less memory, or raise memory_limit.",
            ),
            CrashCause::TooLate => (
                "The worker was told to exit, by a reload for example, and its request did not finish in time.",
                "Make the request faster, or raise process_control_timeout.",
            ),
            CrashCause::OutOfMemory => ended.hint(true).unwrap_or(EARLY),
            // Exit codes have other meanings at a start.
            CrashCause::Exit | CrashCause::Unknown => EARLY,
            CrashCause::Signal { sender: Some(_) } => (
                "A process sent it a signal that ends it.",
                "Look for what that process does. A worker that sends it to itself: look in the script.",
            ),
            CrashCause::Signal { sender: None } => ended.hint(false).unwrap_or(EARLY),
        }
    }
}

const EARLY: (&str, &str) = (
    "The worker ended before it had answered.",
    "Look for the cause in the script and the code that it loads.",
);

#[cfg(test)]
mod tests {
    use super::*;

    const AT_WORK: Evidence = Evidence {
        ended: Ended::Code(0),
        is_at_work: true,
        told: None,
        by: None,
        said: None,
        sent: None,
        is_stack_full: false,
        is_out_of_memory: false,
    };

    fn killed(number: i32) -> Evidence {
        Evidence {
            ended: Ended::killed(number),
            ..AT_WORK
        }
    }

    fn kind(evidence: Evidence) -> Option<&'static str> {
        CrashCause::of(evidence).map(|cause| cause.kind())
    }

    #[test]
    fn a_death_at_work_has_its_cause() {
        let by = |by, told| Evidence {
            by,
            told: Some(told),
            ..killed(15)
        };
        let said = |said| Evidence {
            said: Some(said),
            ..AT_WORK
        };
        for (evidence, expected) in [
            (AT_WORK, Some("exit")),
            (killed(11), Some("signal")),
            (
                Evidence {
                    is_out_of_memory: true,
                    ..killed(9)
                },
                Some("out_of_memory"),
            ),
            (
                Evidence {
                    is_out_of_memory: true,
                    ..killed(11)
                },
                Some("signal"),
            ),
            (
                Evidence {
                    is_stack_full: true,
                    ..killed(11)
                },
                Some("stack_overflow"),
            ),
            (
                by(Some(EndedBy::TimeLimit), StopRequest::Terminate),
                Some("time_limit"),
            ),
            (by(Some(EndedBy::TooLate), StopRequest::Kill), Some("too_late")),
            // By an operator, or at the daemon's end.
            (by(None, StopRequest::Terminate), None),
            // It crashed while it was ending.
            (
                Evidence {
                    told: Some(StopRequest::Terminate),
                    ..killed(11)
                },
                Some("signal"),
            ),
            (by(None, StopRequest::Retire), Some("signal")),
            (said(ExitCause::Memory), Some("memory_limit")),
            (said(ExitCause::Terminated), Some("time_limit")),
            (said(ExitCause::ScriptEnded), None),
            (
                Evidence {
                    told: Some(StopRequest::Retire),
                    ..AT_WORK
                },
                None,
            ),
        ] {
            assert_eq!(kind(evidence.clone()), expected, "{evidence:?}");
        }
    }

    #[test]
    fn an_idle_worker_s_end_is_no_crash_but_for_its_memory() {
        for mut evidence in [killed(9), killed(11), AT_WORK] {
            evidence.is_at_work = false;
            assert_eq!(kind(evidence), None);
        }
        let worn = Evidence {
            said: Some(ExitCause::Memory),
            is_at_work: false,
            ..AT_WORK
        };
        assert_eq!(kind(worn), Some("memory_limit"));
    }

    #[test]
    fn the_sender_is_that_of_the_signal_that_killed() {
        let sent = |number| Evidence {
            sent: Some((number, "itself".to_owned())),
            ..killed(15)
        };
        let said = |evidence| CrashCause::of(evidence).map(|cause| cause.describe(Ended::killed(15)));
        assert_eq!(
            said(sent(15)).as_deref(),
            Some("was killed by signal 15 (SIGTERM), sent by itself")
        );
        assert_eq!(
            said(sent(10)).as_deref(),
            Some("was killed by signal 15 (SIGTERM), sender unknown")
        );
    }
}
