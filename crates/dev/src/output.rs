//! Writes to the terminal. Unlike the standard macros, which they shadow, these do not panic if nobody reads.

use std::fmt::Arguments;
use std::io::{self, Write};

pub(crate) fn show(text: Arguments<'_>) {
    let mut output = io::stdout().lock();
    let _ = output.write_fmt(text).and_then(|()| output.flush());
}

pub(crate) fn complain(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

macro_rules! println {
    ($($text:tt)*) => { $crate::output::show(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::complain(format_args!("{}\n", format_args!($($text)*))) };
}
