//! Displays untrusted text.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a terminal may act on this character or reorder the text: control characters, line separators and
/// bidirectional marks (Unicode Standard Annex 9).
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Escapes control characters as `\x1b` or `\u202e`.
pub fn line(text: &str) -> Cow<'_, str> {
    line_with(text, &[])
}

/// Like [`line()`], but keeps some control characters.
pub fn line_with<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    let is_shown = |c: char| is_control(c) && !kept.contains(&c);
    if !text.contains(is_shown) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        // Writing to memory can't fail.
        let _ = match u32::from(c) {
            code if is_shown(c) && code < 0x100 => write!(line, "\\x{code:02x}"),
            code if is_shown(c) => write!(line, "\\u{code:04x}"),
            _ => line.write_char(c),
        };
    }
    Cow::Owned(line)
}

/// Decodes `%41`. `None`: a percent sign without two hexadecimal digits.
pub fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || (*rest.next()? as char).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push((high * 16 + low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_nothing_that_a_terminal_obeys() {
        assert_eq!(
            line("a\u{1b}[2J\n\u{85}\u{202e}b\u{2028}\u{e4}"),
            "a\\x1b[2J\\x0a\\x85\\u202eb\\u2028\u{e4}"
        );
        assert_eq!(line_with("a\tb\n", &['\t']), "a\tb\\x0a");
        assert!(matches!(line("/srv/\u{e4}"), Cow::Borrowed(_)));
        for c in ('\0'..=char::MAX).filter(|c| is_control(*c)) {
            assert!(!line(&c.to_string()).contains(is_control), "{c:?}");
        }
    }
}
