//! `forkyard crashes`: the workers that died at work.

use super::control::{CommandOutcome, CommandResult, Daemon, answer, printable, tell, unexpected};
use clap::Args;
use forkyard_protocol::control::{Answer, CrashLine, Request};
use forkyard_sys::clock::format_local_time;
use std::fmt::Write as _;
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
        Answer::Crashes { crashes } => Ok(CommandOutcome::success(match arguments.json {
            // Serialising plain values to memory can't fail.
            true => serde_json::to_string_pretty(&crashes).unwrap_or_default() + "\n",
            false => text(&crashes),
        })),
        other => Err(unexpected(other)),
    }
}

fn text(crashes: &[CrashLine]) -> String {
    if crashes.is_empty() {
        return "no worker has died at work\n".to_owned();
    }
    let heads = ["ID", "TIME", "POOL", "DEATHS", "CAUSE", "REQUEST"].map(str::to_owned);
    let rows = crashes.iter().map(|crash| {
        let time = format_local_time(crash.time, "%Y-%m-%d %H:%M:%S");
        let row = [
            crash.id.clone(),
            String::from_utf8_lossy(&time).into_owned(),
            crash.pool.clone(),
            crash.deaths.to_string(),
            crash.cause.clone(),
            crash.request.clone(),
        ];
        row.map(|cell| printable(&cell))
    });
    let rows: Vec<[String; 6]> = std::iter::once(heads).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; 6] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
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
