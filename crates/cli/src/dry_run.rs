//! `forkyard reload --dry-run`: what a reload would change.

use super::control::{CommandOutcome, printable};
use super::skipped;
use forkyard_protocol::changes::{Changes, KeyChange, Outcome, PoolChange};
use std::fmt::Write as _;

/// What is written is not in force.
const EXIT_DIFFERENT: u8 = 1;

/// The changes, and whether there are any as exit code.
pub(super) fn outcome(changes: &Changes) -> CommandOutcome {
    let mut output = String::new();
    for (table, keys) in [("[global]", &changes.global), ("[jobs]", &changes.jobs)] {
        if !keys.is_empty() {
            let _ = writeln!(output, "{table} changes");
            keys.iter().for_each(|key| line(key, &mut output));
        }
    }
    changes
        .pools
        .iter()
        .for_each(|pool| pool_lines(pool, &mut output));
    skipped::lines(&changes.skipped, &mut output);
    let is_in_force = changes.is_in_force();
    if is_in_force {
        output.push_str("the configuration in force is the one that is written\n");
    }
    CommandOutcome {
        code: if is_in_force { 0 } else { EXIT_DIFFERENT },
        ..CommandOutcome::success(output)
    }
}

/// The changes in a line each, for the status.
pub(super) fn in_brief(changes: &Changes) -> Vec<String> {
    let keys = |keys: &[KeyChange]| keys.iter().map(in_words).collect::<Vec<_>>().join(", ");
    let tables = [("[global]", &changes.global), ("[jobs]", &changes.jobs)].into_iter();
    let tables = tables.filter(|(_, list)| !list.is_empty());
    let tables = tables.map(|(table, list)| format!("{table} ({})", keys(list)));
    let pools = changes.pools.iter().filter_map(|pool| {
        let (name, list) = (&pool.pool, keys(&pool.keys));
        let reason = pool.reason.as_deref().unwrap_or_default();
        match pool.outcome {
            Outcome::Added => Some(format!("pool {name} is added")),
            Outcome::Removed => Some(format!("pool {name} is removed")),
            Outcome::Failed => Some(format!("pool {name} fails: {reason}")),
            Outcome::Replaced | Outcome::Kept if !list.is_empty() => Some(format!("pool {name} ({list})")),
            Outcome::Replaced => Some(format!("pool {name}: {reason}")),
            Outcome::Kept => None,
        }
    });
    let skipped = changes.skipped.iter().map(|one| {
        let reason = one.reasons.first().map_or("", String::as_str);
        format!("{} is skipped: {reason}", one.name())
    });
    tables.chain(pools).chain(skipped).collect()
}

fn pool_lines(pool: &PoolChange, text: &mut String) {
    let reason = printable(pool.reason.as_deref().unwrap_or_default());
    let name = printable(&pool.pool);
    let _ = match pool.outcome {
        Outcome::Added => writeln!(text, "pool {name} would be added"),
        Outcome::Replaced => writeln!(text, "pool {name} would be replaced: {reason}"),
        Outcome::Kept => writeln!(text, "pool {name} would keep its workers"),
        Outcome::Removed => writeln!(text, "pool {name} would be removed"),
        Outcome::Failed => writeln!(text, "pool {name} would fail: {reason}"),
    };
    pool.keys.iter().for_each(|key| line(key, text));
}

fn line(key: &KeyChange, text: &mut String) {
    let _ = writeln!(text, "  {}", printable(&in_words(key)));
}

fn in_words(key: &KeyChange) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
    let (before, after) = (value(&key.before), value(&key.after));
    format!("{}: {before} -> {after}", key.key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(keys: Vec<KeyChange>) -> Changes {
        Changes {
            pools: vec![PoolChange {
                pool: "www".to_owned(),
                outcome: Outcome::Replaced,
                reason: Some("its settings changed".to_owned()),
                keys,
            }],
            ..Changes::default()
        }
    }

    #[test]
    fn a_pool_is_shown_with_the_keys_that_differ() {
        let key = KeyChange {
            key: "pm.max_children".to_owned(),
            before: Some("5".to_owned()),
            after: None,
        };
        let said = outcome(&replaced(vec![key]));
        assert_eq!(
            said.output,
            "pool www would be replaced: its settings changed\n  pm.max_children: 5 -> nothing\n"
        );
        assert_eq!(said.code, EXIT_DIFFERENT);
        let key = KeyChange {
            key: "pm.max_children".to_owned(),
            before: Some("5".to_owned()),
            after: Some("8".to_owned()),
        };
        let brief = in_brief(&replaced(vec![key]));
        assert_eq!(brief, ["pool www (pm.max_children: 5 -> 8)"]);
        assert_eq!(
            in_brief(&replaced(Vec::new())),
            ["pool www: its settings changed"]
        );
    }

    #[test]
    fn new_workers_for_the_same_settings_are_no_difference() {
        let said = outcome(&replaced(Vec::new()));
        assert_eq!(said.code, 0);
        assert!(
            said.output.ends_with("is the one that is written\n"),
            "{}",
            said.output
        );
    }
}
