//! What is suggested for a command that does not exist: only commands that are meant to be given.

use clap::error::{ContextKind, ContextValue};
use clap::{Error, Parser};
use std::ffi::OsString;

/// Reads the command line; ends the process if it is wrong, or asks for help.
pub(super) fn parse<P: Parser>(arguments: Vec<OsString>) -> P {
    try_parse(arguments).unwrap_or_else(|error| error.exit())
}

fn try_parse<P: Parser>(arguments: Vec<OsString>) -> Result<P, Error> {
    P::try_parse_from(arguments).map_err(|mut error| {
        let Some(ContextValue::Strings(names)) = error.remove(ContextKind::SuggestedSubcommand) else {
            return error;
        };
        let command = P::command();
        let is_shown = |name: &String| {
            let mut known = command.get_subcommands();
            known.any(|known| known.get_name() == name && !known.is_hide_set())
        };
        let shown: Vec<String> = names.into_iter().filter(is_shown).collect();
        if !shown.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(shown));
        }
        error
    })
}

#[cfg(test)]
mod tests {
    use super::super::Arguments;
    use super::*;

    #[test]
    fn hidden_commands_are_not_suggested() {
        for (word, suggested) in [
            ("spaw", Some("'spawn'")),
            ("spawn-env", Some("'spawn'")),
            ("statu", Some("'status'")),
            ("interp", Some("'init'")),
        ] {
            let error = try_parse::<Arguments>(vec!["forkyard".into(), word.into()]);
            let text = error.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(
                text.contains(&format!("unrecognized subcommand '{word}'")),
                "{text}"
            );
            assert_eq!(text.contains("similar"), suggested.is_some(), "{text}");
            for hidden in ["settings'", "interpreter'", "setupper'", "trace'"] {
                assert!(!text.contains(hidden), "{text}");
            }
            assert!(suggested.is_none_or(|name| text.contains(name)), "{text}");
        }
    }
}
