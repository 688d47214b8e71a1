//! Colour for people at a terminal.

use std::io::IsTerminal;

/// What [`painted`] tells a terminal.
pub(super) const SEQUENCES: [&str; 5] = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m"];

/// What a stretch of text is coloured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hue {
    /// The heads of a table.
    Head,
    Good,
    /// It is on its way to be good.
    Changing,
    Bad,
}

impl Hue {
    /// The number of SGR (ECMA-48, 8.3.117).
    fn code(self) -> u8 {
        match self {
            Hue::Head => 1,
            Hue::Bad => 31,
            Hue::Good => 32,
            Hue::Changing => 33,
        }
    }
}

/// Whether standard output is to be coloured: it is a terminal that can, and the user has not set NO_COLOR.
pub(super) fn is_wanted() -> bool {
    let is_set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    std::io::stdout().is_terminal()
        && is_set("NO_COLOR").is_none()
        && is_set("TERM").is_some_and(|term| term != "dumb")
}

/// The line, coloured from one character up to another.
pub(super) fn painted(line: &str, from: usize, to: usize, hue: Hue) -> String {
    let at = |count: usize| line.char_indices().nth(count).map_or(line.len(), |(at, _)| at);
    let (from, to) = (at(from), at(to));
    if from >= to {
        return line.to_owned();
    }
    let (before, rest) = line.split_at(from);
    let (stretch, after) = rest.split_at(to - from);
    format!("{before}\x1b[{}m{stretch}\x1b[0m{after}", hue.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_of_characters() {
        assert_eq!(painted("\u{e4}bcd", 1, 3, Hue::Good), "\u{e4}\x1b[32mbc\x1b[0md");
        assert_eq!(painted("ab", 1, usize::MAX, Hue::Bad), "a\x1b[31mb\x1b[0m");
        assert_eq!(
            painted("ab", 2, 9, Hue::Bad),
            "ab",
            "what was cut off is not coloured"
        );
        assert_eq!(painted("", 0, 9, Hue::Head), "");
    }
}
