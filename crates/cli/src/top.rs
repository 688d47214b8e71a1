//! `forkyard top`: executes `forkyard-top`, which alone has the crates for terminals.

use super::EXIT_SOFTWARE;
use super::control::{Daemon, quick_socket, tell};
use clap::Args;
use forkyard_daemon::background::program_directory;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

const PROGRAM: &str = "forkyard-top";
const VIEWS: [&str; 7] = [
    "pools",
    "workers",
    "requests",
    "routes",
    "failures",
    "applications",
    "jobs",
];

/// `forkyard top`.
#[derive(Debug, Args)]
pub(super) struct Top {
    #[command(flatten)]
    daemon: Daemon,
    /// The time between two frames, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = super::health::time)]
    interval: Duration,
    /// Print one frame as text
    #[arg(long)]
    once: bool,
    /// Print each frame as a line of JSON
    #[arg(long)]
    json: bool,
    /// Use only ASCII characters
    #[arg(long)]
    ascii: bool,
    /// The first table
    #[arg(long, value_parser = VIEWS, default_value = VIEWS[0])]
    view: String,
}

pub(super) fn run(arguments: &Top) -> ExitCode {
    let Top {
        daemon,
        interval,
        once,
        json,
        ascii,
        view,
    } = arguments;
    let socket = match quick_socket(daemon) {
        Ok(socket) => socket,
        Err(outcome) => return tell(Err(outcome)),
    };
    let beside = program_directory().join(PROGRAM);
    // Otherwise in PATH.
    let program = if beside.exists() { beside } else { PROGRAM.into() };
    let mut command = Command::new(&program);
    command.arg("--socket").arg(socket);
    command.args(["--interval", &interval.as_millis().to_string()]);
    command.args(["--view", view]);
    for (is_set, option) in [(*once, "--once"), (*json, "--json"), (*ascii, "--ascii")] {
        command.args(is_set.then_some(option));
    }
    let error = command.exec();
    match error.kind() {
        ErrorKind::NotFound => eprintln!(
            "forkyard: {PROGRAM} is neither in {} nor in PATH; install the package {PROGRAM}",
            program_directory().display()
        ),
        _ => eprintln!("forkyard: can't run {}: {error}", program.display()),
    }
    ExitCode::from(EXIT_SOFTWARE)
}
