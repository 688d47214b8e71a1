//! `forkyard advise`: how many workers the autopilot would choose for each pool, and why.

use super::control::{CommandOutcome, Daemon, ask_status, printable, tell};
use super::table::shown;
use clap::Args;
use forkyard_protocol::control::{Advice, Status};
use serde::Serialize;
use std::process::ExitCode;

/// Arguments of `forkyard advise`.
#[derive(Debug, Args)]
pub(super) struct Advise {
    #[command(flatten)]
    daemon: Daemon,
    /// Only these pools
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// A pool's advice, as JSON.
#[derive(Debug, Serialize)]
struct Advised<'s> {
    pool: &'s str,
    #[serde(flatten)]
    advice: &'s Advice,
}

pub(super) fn run(wanted: &Advise) -> ExitCode {
    tell(ask_status(&wanted.daemon).and_then(|status| advise(&status, wanted)))
}

fn advise(status: &Status, wanted: &Advise) -> Result<CommandOutcome, CommandOutcome> {
    let is_there = |name: &&String| !status.pools.iter().any(|pool| pool.name == **name);
    if let Some(name) = wanted.pools.iter().find(is_there) {
        let text = format!("forkyard: there is no pool {}\n", printable(name));
        return Err(CommandOutcome::failure(super::EXIT_SOFTWARE, text));
    }
    let pools = status.pools.iter();
    let pools = pools.filter(|pool| wanted.pools.is_empty() || wanted.pools.contains(&pool.name));
    let advised: Vec<Advised<'_>> = pools
        .filter_map(|pool| {
            Some(Advised {
                pool: &pool.name,
                advice: pool.advice.as_deref()?,
            })
        })
        .collect();
    Ok(shown(&advised, wanted.json, |advised| {
        advised.iter().map(line).collect()
    }))
}

fn line(advised: &Advised<'_>) -> String {
    format!(
        "{}: {}\n",
        printable(advised.pool),
        printable(&advised.advice.to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_a_line() {
        let advice = Advice {
            max_children: 40,
            chosen: 12,
            because: "processors\u{7}".to_owned(),
            has_looked: true,
            is_followed: false,
        };
        let followed = Advice {
            is_followed: true,
            ..advice.clone()
        };
        assert_eq!(
            followed.to_string(),
            "max_children auto = 40, after a reload 12: processors\u{7}"
        );
        let advised = Advised {
            pool: "www",
            advice: &advice,
        };
        let expected = "www: max_children = 40; the autopilot would choose 12: processors?\n";
        assert_eq!(line(&advised), expected);
        let json = serde_json::to_value(&advised).unwrap();
        assert_eq!((&json["pool"], &json["chosen"]), (&"www".into(), &12.into()));
    }
}
