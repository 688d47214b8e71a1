//! Pools that can't be had, as the answers to orders show them.

use super::control::printable;
use crate::config::Skipped;
use std::fmt::Write as _;

/// In the status: each with what is wrong below it.
pub(super) fn table(skipped: &[Skipped], text: &mut String) {
    for one in skipped {
        text.push('\n');
        lines(std::slice::from_ref(one), text);
    }
}

/// After a reload.
pub(super) fn lines(skipped: &[Skipped], text: &mut String) {
    for one in skipped {
        let _ = writeln!(text, "{}", printable(&one.to_string()));
        for reason in &one.reasons {
            let _ = writeln!(text, "  {}", printable(reason));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_what_becomes_of_each() {
        let skipped = |pool: Option<&str>, goes_on| Skipped {
            pool: pool.map(str::to_owned),
            file: "/etc/a.toml".into(),
            reasons: vec!["/etc/a.toml:2:1: \u{1b}x".to_owned()],
            goes_on,
        };
        let mut text = String::new();
        table(&[skipped(Some("a"), false), skipped(None, true)], &mut text);
        assert_eq!(
            text,
            "\n[pool a] is skipped, the others serve without it; correct it, then reload\n  /etc/a.toml:2:1: ?x\n\
             \n/etc/a.toml goes on with the settings that it had; correct it, then reload\n  /etc/a.toml:2:1: ?x\n"
        );
    }
}
