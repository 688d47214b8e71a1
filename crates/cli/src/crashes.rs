//! `forkyard crashes`: the workers that died at work.

use super::control::{CommandResult, Daemon, answer, printable, tell, unexpected};
use super::table::{local, shown, table};
use clap::Args;
use forkyard_protocol::control::{Answer, CrashLine, Request};
use std::process::ExitCode;

/// `forkyard crashes`.
#[derive(Debug, Args)]
pub(super) struct Crashes {
    #[command(flatten)]
    daemon: Daemon,
    /// Only of this pool
    pool: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Crashes) -> ExitCode {
    tell(list(arguments))
}

fn list(arguments: &Crashes) -> CommandResult {
    let pool = arguments.pool.clone();
    match answer(&arguments.daemon, &Request::Crashes { pool })? {
        Answer::Crashes { crashes } => Ok(shown(&crashes[..], arguments.json, text)),
        other => Err(unexpected(other)),
    }
}

fn text(crashes: &[CrashLine]) -> String {
    if crashes.is_empty() {
        return "no worker has died at work\n".to_owned();
    }
    table(
        crashes,
        &[
            ("ID", |crash| printable(&crash.id)),
            ("TIME", |crash| local(crash.time)),
            ("POOL", |crash| printable(&crash.pool)),
            ("DEATHS", |crash| crash.deaths.to_string()),
            ("CAUSE", |crash| printable(&crash.cause)),
            ("REQUEST", |crash| printable(&crash.request)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_aligned_and_nothing_is_forged() {
        let crash = CrashLine {
            id: "000000ab".into(),
            time: 0,
            pool: "www".into(),
            kind: "signal".into(),
            cause: "was killed by signal 11 (SIGSEGV)".into(),
            request: "GET /x.php?a=\u{1b}[2J\nforged".into(),
            script: "/srv/x.php".into(),
            deaths: 3,
        };
        let text = text(&[crash.clone(), crash]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("\nforged"), "{text}");
        let at = lines[0].find("CAUSE");
        assert!(at.is_some() && lines[1].find("was killed") == at, "{text}");
        assert!(super::text(&[]).contains("no worker has died"));
    }
}
