//! What workers send for the daemon's log.

use super::line::{pieces, shown};
use super::parse_message;

pub(crate) fn message(input: &[u8]) {
    let (_, text) = parse_message(input);
    let known = input.first().is_some_and(|first| (b'1'..=b'5').contains(first));
    let content = if known { &input[1..] } else { input };
    assert_eq!(text, String::from_utf8_lossy(content));
    let line = shown(input);
    assert!(!line.chars().any(|c| c.is_control() && c != '\t'), "{line:?}");
    let parts = pieces(&line, 40);
    assert_eq!(parts.concat(), line);
    assert!(parts.iter().all(|part| part.len() <= 40));
}
