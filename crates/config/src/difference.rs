//! Lists keys that differ between two configurations, for display. Secrets are hidden.

use super::model::{Config, Pool};
use forkyard_protocol::changes::KeyChange;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

const HIDDEN: &str = "(not shown)";
const SECRETS: [&str; 7] = [
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "apikey",
    "api_key",
];
/// Tables of environment variables, which may all be secrets.
const SECRET_TABLES: [&str; 3] = ["env", "own_env", "environment"];
/// Model fields without a key.
const INNER: [&str; 4] = ["title", "origin", "own_env", "is_control_written"];

pub fn global(before: &Config, after: &Config) -> Vec<KeyChange> {
    difference(&before.global, &after.global)
}

pub fn jobs(before: &Config, after: &Config) -> Vec<KeyChange> {
    difference(&before.jobs, &after.jobs)
}

pub fn pool(before: &Pool, after: &Pool) -> Vec<KeyChange> {
    difference(before, after)
}

fn difference(before: &impl Serialize, after: &impl Serialize) -> Vec<KeyChange> {
    let (before, after) = (keys(before), keys(after));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let changed = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    changed
        .map(|name| KeyChange {
            key: name.clone(),
            before: before.get(name).map(|value| shown(name, value)),
            after: after.get(name).map(|value| shown(name, value)),
        })
        .collect()
}

fn shown(key: &str, value: &str) -> String {
    let key = key.to_ascii_lowercase();
    let is_secret = SECRETS.iter().any(|word| key.contains(word))
        || key.split('.').any(|table| SECRET_TABLES.contains(&table))
        || value.contains("://") && value.contains('@');
    if is_secret { HIDDEN } else { value }.to_owned()
}

fn keys(of: &impl Serialize) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    flatten("", &serde_json::to_value(of).unwrap_or_default(), &mut keys);
    keys
}

fn flatten(key: &str, value: &Value, keys: &mut BTreeMap<String, String>) {
    let mut say = |text: String| _ = keys.insert(key.to_owned(), text);
    match value {
        Value::Null => {}
        Value::String(text) => say(format!("{text:?}")),
        Value::Number(number) if key.rsplit('.').next() == Some("mode") => {
            say(format!("\"{:04o}\"", number.as_u64().unwrap_or_default()));
        }
        Value::Bool(_) | Value::Number(_) => say(value.to_string()),
        Value::Array(list) if list.is_empty() => {}
        Value::Array(list) => match pairs(list) {
            Some(pairs) => pairs.for_each(|(name, value)| flatten(&within(key, name), value, keys)),
            None => say(value.to_string()),
        },
        Value::Object(map) => match (duration(map), variant(map)) {
            (Some(text), _) => say(text),
            (None, Some((name, inner))) => {
                say(format!("{:?}", name.to_lowercase()));
                flatten_variant(key, inner, keys);
            }
            (None, None) => {
                let known = map.iter().filter(|(name, _)| !INNER.contains(&name.as_str()));
                known.for_each(|(name, value)| flatten(&within(key, name), value, keys));
            }
        },
    }
}

fn flatten_variant(key: &str, inner: &Value, keys: &mut BTreeMap<String, String>) {
    match inner {
        Value::Object(map) if duration(map).is_none() => {
            map.iter()
                .for_each(|(name, value)| flatten(&within(key, name), value, keys));
        }
        Value::Null => {}
        one => flatten(key, one, keys),
    }
}

fn within(key: &str, name: &str) -> String {
    match key {
        "" => name.to_owned(),
        _ => format!("{key}.{name}"),
    }
}

fn pairs(list: &[Value]) -> Option<impl Iterator<Item = (&str, &Value)>> {
    let pair = |value: &Value| {
        matches!(
            value.as_array().map(Vec::as_slice),
            Some([Value::String(_), Value::String(_)])
        )
    };
    list.iter().all(pair).then(|| {
        list.iter()
            .filter_map(|value| Some((value.get(0)?.as_str()?, value.get(1)?)))
    })
}

fn variant(map: &Map<String, Value>) -> Option<(&String, &Value)> {
    let (name, inner) = map.iter().next().filter(|_| map.len() == 1)?;
    name.starts_with(|first: char| first.is_ascii_uppercase())
        .then_some((name, inner))
}

fn duration(map: &Map<String, Value>) -> Option<String> {
    let number = |name: &str| map.get(name)?.as_u64();
    let (secs, nanos) = (number("secs")?, number("nanos")?);
    let millis = secs.saturating_mul(1000) + nanos / 1_000_000;
    (map.len() == 2).then(|| match millis % 1000 {
        0 => format!("\"{secs}s\""),
        _ => format!("\"{millis}ms\""),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changed(before: Value, after: Value) -> Vec<String> {
        let none = || "-".to_owned();
        difference(&before, &after)
            .into_iter()
            .map(|it| {
                let (before, after) = (it.before.unwrap_or_else(none), it.after.unwrap_or_else(none));
                format!("{}: {before} {after}", it.key)
            })
            .collect()
    }

    #[test]
    fn values_are_shown_in_the_words_of_the_configuration() {
        let before = json!({"a": {"secs": 5, "nanos": 0}, "pm": {"Dynamic": {"max_children": 5}}, "same": 1,
            "listen": {"mode": 432, "address": {"Unix": "/a"}}, "gone": "x", "none": null});
        let after = json!({"a": {"secs": 0, "nanos": 500_000_000}, "pm": {"Static": {"max_children": 5}}, "same": 1,
            "listen": {"mode": 438, "address": {"Unix": "/b"}}, "none": [], "new": true});
        assert_eq!(
            changed(before, after),
            [
                "a: \"5s\" \"500ms\"",
                "gone: \"x\" -",
                "listen.address: \"/a\" \"/b\"",
                "listen.mode: \"0660\" \"0666\"",
                "new: - true",
                "pm: \"dynamic\" \"static\"",
            ]
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let of = |value: &str| {
            json!({"env": [["KEY", value], ["SAME", "x"]], "secret_file": value,
                "application": {"php_admin_value": [["x.password", value], ["memory_limit", value]]},
                "store": format!("postgresql://user:{value}@host/x")})
        };
        assert_eq!(
            changed(of("one"), of("two")),
            [
                "application.php_admin_value.memory_limit: \"one\" \"two\"",
                "application.php_admin_value.x.password: (not shown) (not shown)",
                "env.KEY: (not shown) (not shown)",
                "secret_file: (not shown) (not shown)",
                "store: (not shown) (not shown)",
            ]
        );
    }
}
