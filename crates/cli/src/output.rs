//! Output macros that replace Rust's, which panic on a write error because Rust ignores SIGPIPE.

use super::{EXIT_SOFTWARE, colour};
use forkyard_base::text::is_control;
use forkyard_sys::signal;
use std::fmt::Arguments;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Escapes control characters in the text, except for forkyard's colours.
fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c| is_control(c) && !matches!(c, '\n' | '\t')) {
        let (before, odd) = rest.split_at(at);
        shown.push_str(before);
        let own = colour::SEQUENCES.iter().find(|own| odd.starts_with(**own));
        let length = own.map_or_else(|| odd.chars().next().map_or(1, char::len_utf8), |own| own.len());
        let (one, behind) = odd.split_at(length);
        match own {
            Some(own) => shown.push_str(own),
            // A JSON escape, so that a document stays valid.
            None => one
                .chars()
                .for_each(|c| shown.push_str(&format!("\\u{:04x}", u32::from(c)))),
        }
        rest = behind;
    }
    shown.push_str(rest);
    shown
}

/// Writes to standard output. If its reader is gone, the process ends by SIGPIPE, like other programs.
pub(super) fn show(text: Arguments<'_>) {
    let mut output = io::stdout().lock();
    let written = output
        .write_all(plain(&text.to_string()).as_bytes())
        .and_then(|()| output.flush());
    if let Err(error) = written {
        refuse(&error, "standard output");
        std::process::exit(i32::from(EXIT_SOFTWARE));
    }
}

/// Writes to standard error. Ignores failures, since the exit code reports the error.
pub(super) fn complain(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_all(plain(&text.to_string()).as_bytes());
}

/// Writes to standard output, in a terminal over the previous text.
pub(super) fn show_anew(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    let clear = if output.is_terminal() { "\x1b[H\x1b[2J" } else { "" };
    output.write_all(clear.as_bytes())?;
    output.write_all(plain(text).as_bytes())?;
    output.flush()
}

/// Overwrites the current line of the terminal on standard error.
pub(super) fn draw(line: &str) {
    let line = format!("\r{}\x1b[K", plain(line));
    let _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Reports a write error. If the reader is gone, ends the process.
pub(super) fn refuse(error: &io::Error, to: &str) {
    if error.kind() == ErrorKind::BrokenPipe {
        signal::end_by_pipe();
    }
    complain(format_args!("forkyard: write {to}: {error}\n"));
}

macro_rules! print {
    ($($text:tt)*) => { $crate::output::show(format_args!($($text)*)) };
}

macro_rules! println {
    ($($text:tt)*) => { $crate::output::show(format_args!("{}\n", format_args!($($text)*))) };
}

macro_rules! eprint {
    ($($text:tt)*) => { $crate::output::complain(format_args!($($text)*)) };
}

macro_rules! eprintln {
    () => { $crate::output::complain(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::complain(format_args!("{}\n", format_args!($($text)*))) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_told_colours_and_nothing_else() {
        let painted = colour::painted("serving", 0, 9, colour::Hue::Good);
        assert_eq!(plain(&painted), painted);
        assert_eq!(plain("a\tb\n\u{e4}"), "a\tb\n\u{e4}");
        assert_eq!(
            plain("a\u{1b}]0;x\u{7}\r\u{9b}2J\u{202e}b\u{1b}"),
            "a\\u001b]0;x\\u0007\\u000d\\u009b2J\\u202eb\\u001b"
        );
        let document = serde_json::json!({ "kind": "\u{1b}\u{7f}\u{85}\u{202e}" });
        let shown = plain(&document.to_string());
        assert!(!shown.contains(is_control), "{shown}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            document
        );
    }
}
