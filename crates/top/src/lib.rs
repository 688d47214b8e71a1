//! `forkyard top`: shows the work of a running daemon in a terminal.
//!
//! `source` and `look` read the daemon's status and the kernel's numbers into `readings`. `model` makes the values of a
//! frame from two readings, `view` makes cells of a terminal from a frame, and `screen` handles keys. All three are pure.
//! `terminal` is the loop around them.
#![deny(unsafe_code)]

mod histogram;
mod look;
mod model;
mod orders;
mod readings;
mod screen;
mod source;
mod terminal;
#[cfg(test)]
mod tests;
mod view;
mod why;

use clap::Parser;
use forkyard_base::text;
use forkyard_sys::signal;
use model::{Frame, Model};
use source::{Source, SourceError};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use view::{Theme, View};

/// sysexits.h: EX_UNAVAILABLE, EX_SOFTWARE.
const EXIT_UNAVAILABLE: u8 = 69;
const EXIT_SOFTWARE: u8 = 70;
/// The width of a frame without a terminal.
const WIDE: u16 = 500;

/// Shows pools, workers and requests; `forkyard top` starts this program
#[derive(Debug, Parser)]
#[command(name = "forkyard-top", version)]
struct Arguments {
    /// The daemon's control socket
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// The time between two frames, in milliseconds
    #[arg(long, value_name = "MILLISECONDS", default_value = "1000")]
    interval: u64,
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
    #[arg(long, value_enum, default_value_t)]
    view: View,
}

#[derive(Debug, thiserror::Error)]
enum TopError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("can't use the terminal: {0}")]
    Terminal(io::Error),
    #[error("standard output is no terminal that can place text; --once prints a frame, --json all of them")]
    NoTerminal,
    #[error("can't write: {0}")]
    Write(io::Error),
    #[error("can't write JSON: {0}")]
    Json(#[from] serde_json::Error),
}

/// Runs `forkyard-top` with this process's arguments.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe.
        Err(TopError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => signal::end_by_pipe(),
        Err(error) => {
            eprintln!("forkyard: {}", text::line(&error.to_string()));
            let is_silent = matches!(&error, TopError::Source(SourceError::Ask(error)) if error.is_silence());
            ExitCode::from(if is_silent {
                EXIT_UNAVAILABLE
            } else {
                EXIT_SOFTWARE
            })
        }
    }
}

fn run(arguments: Arguments) -> Result<(), TopError> {
    let Arguments {
        socket,
        interval,
        once,
        json,
        ascii,
        view,
    } = arguments;
    let interval = Duration::from_millis(interval.max(1));
    let output = io::stdout();
    let mut source = Source::new(socket.clone());
    let has_routes = json || view == View::Routes;
    if !once && !json {
        if !output.is_terminal() || is_dumb(std::env::var_os("TERM").as_deref()) {
            return Err(TopError::NoTerminal);
        }
        let first = source.read(has_routes)?;
        let theme = theme(ascii);
        return terminal::run(socket, source, first, interval, view, theme).map_err(TopError::Terminal);
    }
    let mut model = Model::default();
    model.push(source.read(has_routes)?);
    loop {
        std::thread::sleep(interval);
        let frame = model.push(source.read(has_routes)?);
        let text = match json {
            true => serde_json::to_string(&frame)? + "\n",
            false => plain(&frame, view, theme(ascii)),
        };
        let mut output = output.lock();
        let written = output
            .write_all(escaped(&text).as_bytes())
            .and_then(|()| output.flush());
        written.map_err(TopError::Write)?;
        if once {
            return Ok(());
        }
    }
}

/// Whether the terminal only appends text.
fn is_dumb(name: Option<&std::ffi::OsStr>) -> bool {
    name.is_some_and(|name| name == "dumb")
}

/// Escapes control characters as JSON does, so that a document stays valid.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match text::is_control(c) && c != '\n' {
            true => shown += &format!("\\u{:04x}", u32::from(c)),
            false => shown.push(c),
        }
    }
    shown
}

fn plain(frame: &Frame, view: View, theme: Theme) -> String {
    let columns = forkyard_sys::terminal::columns(&io::stdout());
    let columns = columns.and_then(|columns| u16::try_from(columns).ok());
    view::plain(frame, view, columns.unwrap_or(WIDE), theme)
}

/// Returns the terminal's abilities according to the environment.
fn theme(ascii: bool) -> Theme {
    let is_set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    // locale(7): the first variable that is set.
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(is_set);
    let locale = locale.unwrap_or_default().to_lowercase();
    let is_unicode = locale.contains("utf-8") || locale.contains("utf8");
    Theme {
        is_coloured: is_set("NO_COLOR").is_none(),
        is_ascii: ascii || !is_unicode,
    }
}
