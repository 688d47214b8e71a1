//! Colour for people at a terminal.

use std::io::IsTerminal;

/// The meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hue {
    /// The heads of a table.
    Head,
    Good,
    /// A state that is improving.
    Changing,
    Bad,
}

impl Hue {
    const fn sequence(self) -> &'static str {
        match self {
            Hue::Head => "\x1b[1m",
            Hue::Bad => "\x1b[31m",
            Hue::Good => "\x1b[32m",
            Hue::Changing => "\x1b[33m",
        }
    }
}

/// Ends a colour.
const END: &str = "\x1b[0m";
/// All sequences that [`painted`] writes.
pub(super) const SEQUENCES: [&str; 5] = [
    END,
    Hue::Head.sequence(),
    Hue::Bad.sequence(),
    Hue::Good.sequence(),
    Hue::Changing.sequence(),
];

/// Whether standard output gets colours: it is a terminal that supports them, and NO_COLOR is not set.
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
    format!("{before}{}{stretch}{END}{after}", hue.sequence())
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
