//! `forkyard version`: which program the daemon runs, and which is on disk.

use super::control::{CommandOutcome, Daemon, printable, tell, unexpected};
use super::{health, texts};
use forkyard_protocol::control::{Answer, Request};
use forkyard_protocol::program::Program;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

/// The program on disk is not the running one.
const EXIT_DIFFERENT: u8 = 1;
/// The end of a sentence about a program whose file was removed.
pub(super) const GONE: &str =
    "no longer on disk: install it again, because no new process of forkyard starts without it";

/// Prints both.
pub(super) fn version(daemon: &Daemon) -> ExitCode {
    let answer = health::answer(daemon, Request::Ping {});
    let running = answer.and_then(|answer| match answer {
        Answer::Pong {
            pid,
            program: Some(program),
            ..
        } => Ok(outcome(pid, &program, is_own(&program.path))),
        // An older daemon reports no more, nor does the socket of owners.
        Answer::Pong { pid, version, .. } => Ok(CommandOutcome::success(format!(
            "forkyard {} runs, pid {pid}\n",
            printable(&version)
        ))),
        other => Err(unexpected(other)),
    });
    tell(running.map_err(|failed| CommandOutcome {
        errors: format!(
            "forkyard {} is on disk; no daemon was asked\n{}",
            texts::VERSION,
            failed.errors
        ),
        ..failed
    }))
}

/// `is_own`: the file on disk is this command's program.
fn outcome(pid: u32, program: &Program, is_own: bool) -> CommandOutcome {
    let path = printable(&program.path.display().to_string());
    let runs = format!("forkyard {} runs, pid {pid}, {path}\n", printable(&program.build));
    let (on_disk, code) = match (program.replaced, is_own) {
        _ if program.missing => (format!("it is {GONE}\n"), EXIT_DIFFERENT),
        (false, _) => ("the same is on disk\n".to_owned(), 0),
        (true, true) => (
            format!(
                "forkyard {} is on disk: forkyard upgrade lets it take over\n",
                texts::VERSION
            ),
            EXIT_DIFFERENT,
        ),
        // The command does not execute it for its version, because the daemon's answer could name any program.
        (true, false) => (
            format!("another is on disk, which {path} --version names: forkyard upgrade lets it take over\n"),
            EXIT_DIFFERENT,
        ),
    };
    CommandOutcome {
        code,
        ..CommandOutcome::success(runs + &on_disk)
    }
}

/// Whether this command is executed from that file.
pub(super) fn is_own(path: &Path) -> bool {
    let (Ok(own), Ok(other)) = (fs::metadata("/proc/self/exe"), fs::metadata(path)) else {
        return false;
    };
    (own.dev(), own.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_on_disk_is_told_with_its_remedy() {
        let program = |replaced| Program {
            build: "1.2.3 (abc)".to_owned(),
            path: "/usr/sbin/forkyard".into(),
            replaced,
            missing: false,
        };
        let same = outcome(7, &program(false), true);
        let expected = "forkyard 1.2.3 (abc) runs, pid 7, /usr/sbin/forkyard\nthe same is on disk\n";
        assert_eq!((same.output.as_str(), same.code), (expected, 0));
        let other = outcome(7, &program(true), true);
        let end = format!(
            "forkyard {} is on disk: forkyard upgrade lets it take over\n",
            texts::VERSION
        );
        assert!(other.output.ends_with(&end), "{}", other.output);
        let unknown = outcome(7, &program(true), false);
        assert!(
            unknown
                .output
                .contains("which /usr/sbin/forkyard --version names"),
            "{}",
            unknown.output
        );
        assert_eq!((other.code, unknown.code), (EXIT_DIFFERENT, EXIT_DIFFERENT));
        let missing = Program {
            missing: true,
            ..program(false)
        };
        let gone = outcome(7, &missing, false);
        assert!(gone.output.ends_with("\nit is no longer on disk: install it again, because no new process of forkyard starts without it\n"));
        assert_eq!(gone.code, EXIT_DIFFERENT);
    }
}
