//! What is said on the terminal. The standard library's macros panic where nobody reads it any more: these take their names, and
//! the site is served all the same.

use std::fmt::Arguments;
use std::io::{self, Write};

/// Writes to standard output.
pub(crate) fn show(text: Arguments<'_>) {
    let mut output = io::stdout().lock();
    let _ = output.write_fmt(text).and_then(|()| output.flush());
}

/// Writes to standard error.
pub(crate) fn complain(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

macro_rules! println {
    ($($text:tt)*) => { $crate::output::show(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::complain(format_args!("{}\n", format_args!($($text)*))) };
}
