//! What commands write. Rust ignores SIGPIPE, and has its macros panic where output can't be written: these take their names.

use super::EXIT_SOFTWARE;
use crate::sys::signal;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// Writes to standard output. A command whose output is not read any more ends by SIGPIPE, as other programs do.
pub(super) fn show(text: Arguments<'_>) {
    let mut output = io::stdout().lock();
    let written = output.write_fmt(text).and_then(|()| output.flush());
    if let Err(error) = written {
        refuse(&error, "standard output");
        std::process::exit(i32::from(EXIT_SOFTWARE));
    }
}

/// Writes to standard error. If that is not read, the exit code still says what went wrong.
pub(super) fn complain(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Says that output could not be written; if its reader is gone, it ends the process.
pub(super) fn refuse(error: &io::Error, to: &str) {
    if error.kind() == ErrorKind::BrokenPipe {
        signal::end_by_pipe();
    }
    complain(format_args!("forkyard: write {to}: {error}\n"));
}

macro_rules! print {
    ($($text:tt)*) => { $crate::cli::output::show(format_args!($($text)*)) };
}

macro_rules! println {
    ($($text:tt)*) => { $crate::cli::output::show(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprint {
    ($($text:tt)*) => { $crate::cli::output::complain(format_args!($($text)*)) };
}

macro_rules! eprintln {
    () => { $crate::cli::output::complain(format_args!("\n")) };
    ($($text:tt)*) => { $crate::cli::output::complain(format_args!("{}\n", format_args!($($text)*))) };
}
