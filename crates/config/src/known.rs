//! Suggests fixes for unknown keys: a similar key, its right section, or the name of a php-fpm setting here.

use super::settings;
use super::value::quoted;

const LEAST_LIKENESS: f64 = 0.7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Top,
    Global,
    Pool,
    Site,
    Jobs,
}

/// Other common names.
const ALIASES: &[(&str, &str)] = &[
    ("process_max", "write process.max"),
    ("process_priority", "write process.priority"),
    ("listen.setfib", "it exists on FreeBSD only; leave it out"),
];

/// Advice for an unknown key. `keys`: the valid ones.
pub(super) fn advice(section: Section, path: &str, keys: &[&str]) -> Option<String> {
    let plain = path.replace('"', "");
    if matches!(section, Section::Site | Section::Jobs) {
        return nearest(&plain, keys);
    }
    // `listen` is usually a string, which can't have dotted keys.
    let of_listen = plain
        .strip_prefix("listen")
        .and_then(|leaf| leaf.strip_prefix(['.', '_']));
    if let Some(leaf) = of_listen.filter(|leaf| keys.contains(&format!("listen.{leaf}").as_str())) {
        return Some(in_listen(leaf));
    }
    if plain != path && keys.contains(&plain.as_str()) {
        return Some(format!("write {plain} without quotes"));
    }
    php_fpm(&plain)
        .or_else(|| elsewhere(section, &plain))
        .or_else(|| nearest(&plain, keys))
}

/// Whether php-fpm has this setting under another name or place.
pub(super) fn is_php_fpm(path: &str) -> bool {
    php_fpm(path).is_some()
}

pub(super) fn is_directive(name: &str) -> bool {
    let name = name.split_once('[').map_or(name, |(table, _)| table);
    settings::directives(false).any(|(directive, _)| directive.name == name)
        || [
            "env",
            "php_value",
            "php_flag",
            "php_admin_value",
            "php_admin_flag",
        ]
        .contains(&name)
}

/// Whether a table head belongs to forkyard's configuration.
pub(super) fn is_table(name: &str) -> bool {
    let first = name.split_once('.').map(|(first, _)| first);
    first.is_some_and(|first| ["pool", "pools", "jobs"].contains(&first)) || name == "jobs"
}

/// Advice for a line that isn't TOML, read as php-fpm's syntax.
pub(super) fn advice_for_line(line: &str, problem: &str) -> Option<String> {
    let line = line.trim();
    if line.starts_with(';') {
        return Some("a comment starts with #".to_owned());
    }
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    if let Some((table, name)) = key.strip_suffix(']').and_then(|key| key.split_once('[')) {
        return Some(format!("write {table} = {{ {name} = \"...\" }}"));
    }
    if problem.contains("leading zero") {
        return Some("put octal digits in quotes: \"0660\"".to_owned());
    }
    if let Some(leaf) = key.strip_prefix("listen.") {
        return Some(in_listen(leaf));
    }
    if let Some(advice) = php_fpm(key) {
        return Some(advice);
    }
    match value {
        "yes" | "on" | "Yes" | "On" => return Some(format!("write {key} = true")),
        "no" | "off" | "No" | "Off" => return Some(format!("write {key} = false")),
        _ => {}
    }
    let bare = |c: char| c.is_alphanumeric() || "._-/:$".contains(c);
    if !value.is_empty() && value.chars().all(bare) && !is_number(value) {
        return Some(format!("put the value in quotes: {key} = \"{value}\""));
    }
    None
}

fn in_listen(leaf: &str) -> String {
    format!("to give {leaf}, write listen = {{ address = \"...\", {leaf} = ... }}")
}

fn is_number(value: &str) -> bool {
    value.parse::<i64>().is_ok() && (value == "0" || !value.starts_with('0'))
}

pub(super) fn nearest_word<'k>(word: &str, words: &[&'k str]) -> Option<&'k str> {
    let word = word.to_ascii_lowercase();
    let likeness = |other: &str| strsim::normalized_damerau_levenshtein(&word, other);
    // Skip words of very different length: comparing long words is slow.
    let length = word.chars().count();
    let may_be_alike = |other: &&&str| {
        let other = other.chars().count();
        length.min(other) as f64 >= LEAST_LIKENESS * length.max(other) as f64
    };
    let alike = words.iter().filter(may_be_alike);
    let best = alike.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= LEAST_LIKENESS).then_some(best)
}

/// Suggests the most similar of the names that are there.
pub(super) fn suggestion(name: &str, names: &[&str], otherwise: &str) -> String {
    match nearest_word(name, names) {
        Some(nearest) => format!("did you mean {}?", quoted(nearest)),
        None => otherwise.to_owned(),
    }
}

/// The name of a php-fpm setting here, if it differs.
fn php_fpm(path: &str) -> Option<String> {
    let is_renamed = |setting: &&settings::Setting| {
        setting.directive.is_some_and(|directive| directive.name == path) && setting.key != path
    };
    if let Some(settings::Setting { section, key, .. }) = settings::all().find(is_renamed) {
        return Some(if section.is_application() {
            format!("write {key} in {}", section.title())
        } else {
            format!("php-fpm's {path} is written {key}")
        });
    }
    let absent = settings::absence(path).map(|absent| absent.advice);
    let alias = || ALIASES.iter().find(|(name, _)| *name == path);
    absent
        .or_else(|| alias().map(|(_, advice)| *advice))
        .map(str::to_owned)
}

fn elsewhere(section: Section, path: &str) -> Option<String> {
    let is = |keys: &[&str], path: &str| {
        keys.iter().any(|key| {
            path == *key
                || path
                    .strip_prefix(key)
                    .is_some_and(|rest| rest.starts_with('.') && !key.contains("listen"))
        })
    };
    let in_application = path.strip_prefix("application.");
    let application = |leaf: &str| {
        let mut keys = settings::all().filter(|setting| setting.section.is_application());
        leaf == "runtime" || keys.any(|setting| is(&[setting.key], leaf))
    };
    let pool =
        |leaf: &str| is(&settings::keys(settings::Section::Pool), leaf) && !leaf.starts_with("application.");
    let global = |leaf: &str| is(&settings::keys(settings::Section::Global), leaf);
    let location = match (section, in_application) {
        (Section::Pool, None) if application(path) => "[pool.NAME.application]",
        (Section::Pool, Some(leaf)) if pool(leaf) => "[pool.NAME]",
        (Section::Pool, leaf) if global(leaf.unwrap_or(path)) => "[global]",
        (Section::Top, None) if global(path) => "[global]",
        (Section::Top | Section::Global, None) if pool(path) => "[pool.NAME]",
        (Section::Top | Section::Global, None) if application(path) => "[pool.NAME.application]",
        _ => return None,
    };
    Some(format!("it belongs in {location}"))
}

/// The most similar key, as a whole or in its last part.
fn nearest(path: &str, keys: &[&str]) -> Option<String> {
    if let Some(key) = nearest_word(path, keys) {
        return Some(format!("did you mean {key}?"));
    }
    let last = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let leaves: Vec<String> = keys.iter().map(|key| last(key)).collect();
    let leaves: Vec<&str> = leaves.iter().map(String::as_str).collect();
    let leaf = nearest_word(&last(path), &leaves)?;
    let at = leaves.iter().position(|other| *other == leaf)?;
    Some(format!("did you mean {}?", keys[at]))
}
