//! php-fpm's options, as its getopt reads them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// One option as it was met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Met {
    /// A flag, by its letter.
    Flag(char),
    /// An option with its argument.
    With(char, OsString),
    /// Something that is no option.
    Wrong,
}

/// Letters, whether an argument follows, long names.
const OPTIONS: &[(char, bool, &[&str])] = &[
    ('c', true, &["php-ini"]),
    ('d', true, &["define"]),
    ('e', false, &["profile-info"]),
    ('h', false, &["help", "usage"]),
    ('i', false, &["info"]),
    ('m', false, &["modules"]),
    ('n', false, &["no-php-ini"]),
    ('v', false, &["version"]),
    ('y', true, &["fpm-config"]),
    ('t', false, &["test"]),
    ('p', true, &["prefix"]),
    ('g', true, &["pid"]),
    ('R', false, &["allow-to-run-as-root"]),
    ('D', false, &["daemonize"]),
    ('F', false, &["nodaemonize"]),
    ('O', false, &["force-stderr"]),
    ('?', false, &[]),
];

/// Takes the arguments apart, in order, up to the first that is wrong.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Vec<Met> {
    let mut arguments = arguments.into_iter();
    let mut met = Vec::new();
    while let Some(argument) = arguments.next() {
        let bytes = argument.as_bytes().to_vec();
        let is_fine = if bytes == b"--" {
            if arguments.next().is_some() {
                met.push(Met::Wrong);
            }
            break;
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            long_option(long, &mut arguments, &mut met)
        } else if let Some(letters) = bytes.strip_prefix(b"-").filter(|letters| !letters.is_empty()) {
            short_options(letters, &mut arguments, &mut met)
        } else {
            false
        };
        if !is_fine {
            met.push(Met::Wrong);
            break;
        }
    }
    met
}

fn long_option(text: &[u8], rest: &mut impl Iterator<Item = OsString>, met: &mut Vec<Met>) -> bool {
    let mut parts = text.splitn(2, |byte| *byte == b'=');
    let name = parts.next().unwrap_or_default();
    let glued = parts.next();
    let found = OPTIONS
        .iter()
        .find(|(_, _, names)| names.iter().any(|long| long.as_bytes() == name));
    match found {
        Some((letter, true, _)) => {
            match glued.map(os_string).or_else(|| rest.next()) {
                Some(value) => met.push(Met::With(*letter, value)),
                None => return false,
            }
            true
        }
        Some((letter, false, _)) => {
            met.push(Met::Flag(*letter));
            glued.is_none()
        }
        None => false,
    }
}

fn short_options(letters: &[u8], rest: &mut impl Iterator<Item = OsString>, met: &mut Vec<Met>) -> bool {
    for (at, byte) in letters.iter().enumerate() {
        let found = OPTIONS.iter().find(|(letter, _, _)| *letter == char::from(*byte));
        match found {
            Some((letter, false, _)) => met.push(Met::Flag(*letter)),
            Some((letter, true, _)) => {
                let glued = &letters[at + 1..];
                let glued = glued.strip_prefix(b"=").unwrap_or(glued);
                let value = Some(os_string(glued)).filter(|value| !value.is_empty());
                let Some(value) = value.or_else(|| rest.next()) else {
                    return false;
                };
                met.push(Met::With(*letter, value));
                return true;
            }
            None => return false,
        }
    }
    true
}

fn os_string(bytes: &[u8]) -> OsString {
    std::ffi::OsStr::from_bytes(bytes).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Met, parse};

    fn check(line: &str, expected: &[Met]) {
        let met = parse(line.split_whitespace().map(Into::into));
        assert_eq!(met, expected, "{line}");
    }

    #[test]
    fn options_are_bundled_glued_and_long() {
        let with = |letter, value: &str| Met::With(letter, value.into());
        check("-tt", &[Met::Flag('t'), Met::Flag('t')]);
        check(
            "-nRy f -F",
            &[Met::Flag('n'), Met::Flag('R'), with('y', "f"), Met::Flag('F')],
        );
        check("-da=b -d a=b", &[with('d', "a=b"), with('d', "a=b")]);
        check("--prefix=/x --pid p", &[with('p', "/x"), with('g', "p")]);
    }

    #[test]
    fn what_is_no_option_ends_the_line() {
        check("-t x -F", &[Met::Flag('t'), Met::Wrong]);
        check("--nope", &[Met::Wrong]);
        check("-tz", &[Met::Flag('t'), Met::Wrong]);
        check("-y", &[Met::Wrong]);
    }
}
