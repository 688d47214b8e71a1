//! Descriptions of process exits.

use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// With an exit code.
    Code(i32),
    /// Killed by a signal.
    Signal { number: i32, core: bool },
    /// Unknown: another process's child.
    Unknown,
}

impl Ended {
    /// Killed by a signal, without a core dump.
    pub const fn killed(number: i32) -> Ended {
        Ended::Signal { number, core: false }
    }

    /// Returns a predicate for a sentence about the process.
    pub fn describe(self) -> String {
        match self {
            Ended::Code(code) => format!("exited with code {code}"),
            Ended::Signal { number, core } => {
                let core = if core { ", core dumped" } else { "" };
                format!("was killed by signal {number} ({}{core})", signal_name(number))
            }
            Ended::Unknown => "ended".to_owned(),
        }
    }

    /// Whether others usually send this signal: SIGQUIT, SIGKILL (also the OOM killer) or SIGTERM.
    pub fn is_from_outside(self) -> bool {
        matches!(
            self,
            Ended::Signal {
                number: 3 | 9 | 15,
                ..
            }
        )
    }

    /// Whether it was SIGSEGV or SIGBUS. Their numbers are the same on every architecture that forkyard is built for.
    pub fn is_crash(self) -> bool {
        matches!(self, Ended::Signal { number: 7 | 11, .. })
    }

    /// Whether SIGKILL ended the process, or its child if the process is a shell that reports it.
    pub fn is_by_force(self) -> bool {
        matches!(self, Ended::Signal { number: 9, .. } | Ended::Code(137))
    }

    /// Returns the usual meaning and a remedy.
    pub fn hint(self, out_of_memory: bool) -> Option<(&'static str, &'static str)> {
        let hint = match self {
            Ended::Signal { number: 9, .. } | Ended::Code(137) if out_of_memory => (
                "The kernel killed it because its memory limit was reached or the machine was out of memory.",
                "Give the service or container more memory, or let the application use less while it starts.",
            ),
            Ended::Signal { number: 9, .. } => (
                "It was killed by force: by the kernel for want of memory, or by another program.",
                "Look into the kernel's log (dmesg) for \"Out of memory\".",
            ),
            Ended::Signal { number: 24, .. } => (
                "It used up the CPU time that its limit allows.",
                "Raise the limit \"cpu\", or let the application need less CPU time.",
            ),
            Ended::Signal { number: 25, .. } => (
                "It wrote a file that is larger than its limit allows.",
                "Raise the limit \"fsize\".",
            ),
            Ended::Signal { number: 31, .. } => (
                "It made a system call that a seccomp filter forbids.",
                "Look which system calls the service's filter allows (systemd: SystemCallFilter).",
            ),
            Ended::Signal {
                number: 4 | 6 | 7 | 8 | 11,
                ..
            } => (
                "It crashed. Most often a native library that it has loaded is at fault.",
                "Look at its last output and at the core dump; check that native libraries fit the installed version of \
                 the language.",
            ),
            Ended::Code(126) => (
                "A shell exits with 126 if it found the command and could not execute it.",
                "Check that the command is an executable file for this machine and that its interpreter is there.",
            ),
            Ended::Code(127) => (
                "A shell exits with 127 if it did not find the command.",
                "Check how the command is spelt, and PATH in the environment below.",
            ),
            Ended::Code(0) => (
                "It ended as if all were well. An application that goes to the background does so: the process that was \
                 started ends and another goes on.",
                "Run the application in the foreground, and let it wait for requests after it has reported \
                 that it is ready.",
            ),
            Ended::Code(_) | Ended::Signal { .. } | Ended::Unknown => return None,
        };
        Some(hint)
    }
}

/// The Linux name of a signal (signal(7)), or its kind.
fn signal_name(number: i32) -> &'static str {
    const NAMES: [&str; 31] = [
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    let index = usize::try_from(number - 1).ok();
    index
        .and_then(|index| NAMES.get(index))
        .copied()
        .unwrap_or("real-time signal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_words() {
        let killed = Ended::killed(9);
        assert_eq!(killed.describe(), "was killed by signal 9 (SIGKILL)");
        assert!(killed.hint(true).expect("a hint").0.contains("memory limit"));
        let crashed = Ended::Signal {
            number: 11,
            core: true,
        };
        assert_eq!(
            crashed.describe(),
            "was killed by signal 11 (SIGSEGV, core dumped)"
        );
        assert_eq!(Ended::Code(3).describe(), "exited with code 3");
        assert_eq!(Ended::Code(3).hint(false), None);
        assert_eq!(signal_name(64), "real-time signal");
        assert_eq!(signal_name(31), "SIGSYS");
        assert_eq!(signal_name(0), "real-time signal");
    }
}
