//! Tips for unknown commands: the command with the same function, otherwise public commands with a similar name.

use clap::error::{ContextKind, ContextValue};
use clap::{Command, Error, FromArgMatches};
use std::ffi::OsString;

/// Commands of other programs, and the tip for each.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["start"],
        "'service forkyard start' or 'systemctl start forkyard' starts the daemon; 'forkyard run' starts it without a service",
    ),
    (
        &["stop", "quit", "shutdown", "kill", "end"],
        "'service forkyard stop' or 'systemctl stop forkyard' stops the daemon; without a service use 'kill -QUIT PID', where \
         'forkyard ping' prints the PID; 'forkyard terminate PID' ends one request",
    ),
    (
        &["log", "tail", "journal"],
        "'forkyard logs' shows where the logs are, and 'forkyard logs -f' follows them; 'forkyard error' shows \
         why an application did not start",
    ),
    (
        &["monitor", "watch", "htop"],
        "'forkyard top' shows pools, workers and requests, and refreshes every second",
    ),
    (
        &["ps", "list", "ls", "pools", "workers", "info", "show"],
        "'forkyard status' shows all pools, and 'forkyard status POOL' shows one in full",
    ),
    (
        &[
            "test",
            "configtest",
            "config-test",
            "validate",
            "verify",
            "lint",
            "-t",
        ],
        "'forkyard check' checks the configuration",
    ),
    (
        &["config", "configuration", "dump", "settings"],
        "'forkyard check --effective' shows the settings in force",
    ),
    (&["rotate", "reopen"], "'forkyard reopen-logs' reopens the logs"),
    (
        &["serve", "server", "daemon"],
        "'forkyard run' runs the daemon, and 'forkyard dev' serves one directory",
    ),
    (
        &["new", "create", "add", "install"],
        "'forkyard init' writes a pool and an nginx site",
    ),
];

/// Reads the command line; ends the process if it is wrong, or asks for help.
pub(super) fn parse<P: FromArgMatches>(command: Command, arguments: Vec<OsString>) -> P {
    try_parse(command, arguments).unwrap_or_else(|error| error.exit())
}

fn try_parse<P: FromArgMatches>(mut command: Command, arguments: Vec<OsString>) -> Result<P, Error> {
    let read = command
        .try_get_matches_from_mut(arguments)
        .and_then(|mut matches| P::from_arg_matches_mut(&mut matches));
    read.map_err(|error| {
        let mut error = error.format(&mut command);
        if let Some(tip) = elsewhere(&error) {
            error.remove(ContextKind::SuggestedSubcommand);
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
            return error;
        }
        let Some(ContextValue::Strings(names)) = error.remove(ContextKind::SuggestedSubcommand) else {
            return error;
        };
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

/// Returns the tip for a command of another program.
fn elsewhere(error: &Error) -> Option<&'static str> {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    // Below a command, as in `forkyard pool list`, the word has another meaning.
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    if usage.is_some_and(|usage| !usage.contains("forkyard <")) {
        return None;
    }
    let known = ELSEWHERE.iter().find(|(names, _)| names.contains(&name.as_str()));
    known.map(|(_, tip)| *tip)
}

#[cfg(test)]
mod tests {
    use super::super::{Arguments, texts};
    use super::*;

    fn try_parse(arguments: Vec<OsString>) -> Result<Arguments, Error> {
        super::try_parse(texts::command_line(), arguments)
    }

    #[test]
    fn commands_of_other_programs_have_a_tip() {
        for (word, tip) in [
            ("stop", "tip: 'service forkyard stop'"),
            ("start", "tip: 'service forkyard start'"),
            ("log", "tip: 'forkyard logs' shows where"),
            ("monitor", "tip: 'forkyard top'"),
            ("test", "tip: 'forkyard check'"),
        ] {
            let error = try_parse(vec!["forkyard".into(), word.into()]);
            let text = error.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains(tip) && !text.contains("similar"), "{text}");
        }
        // Every proposed command exists.
        let top = ["forkyard", "top"].map(Into::into);
        assert!(try_parse(top.to_vec()).is_ok());
        let other = try_parse(vec!["forkyard".into(), "pool".into(), "list".into()]);
        let text = other.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            text.contains("'list'") && !text.contains("forkyard status"),
            "{text}"
        );
    }

    #[test]
    fn hidden_commands_are_not_suggested() {
        for (word, suggested) in [
            ("spaw", Some("'spawn'")),
            ("spawn-env", Some("'spawn'")),
            ("statu", Some("'status'")),
            ("interp", Some("'init'")),
        ] {
            let error = try_parse(vec!["forkyard".into(), word.into()]);
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
