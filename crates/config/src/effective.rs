//! Renders the effective configuration with the source of each value.

use super::flat_keys::FlatKeys;
use super::settings::{self, Section};
use forkyard_protocol::runtimes::Kind;
use std::fmt::Write as _;

const COLUMN: usize = 56;

#[derive(Debug)]
pub(super) struct Effective {
    pool: Option<String>,
    keys: Vec<(String, String, String)>,
}

impl Effective {
    pub(super) fn of(pool: Option<&str>, keys: &FlatKeys<'_>) -> Effective {
        let said = keys.said();
        Effective {
            pool: pool.map(str::to_owned),
            keys: said
                .map(|(key, value, place)| (key, value, place.to_string()))
                .collect(),
        }
    }

    /// Renders TOML, with defaults for missing keys.
    pub(super) fn render(&self, text: &mut String) {
        let _ = match &self.pool {
            None => writeln!(text, "[global]"),
            Some(pool) => writeln!(
                text,
                "[pool.{}]",
                super::flat_keys::dotted(std::slice::from_ref(pool))
            ),
        };
        for (key, value, source) in &self.keys {
            line(text, &format!("{key} = {value}"), source);
        }
        for section in self.sections() {
            for setting in settings::of(section) {
                let key = setting.path();
                if self.says(&key) || setting.default.is_empty() || setting.default.starts_with("required") {
                    continue;
                }
                match setting.literal() {
                    Some(literal) => line(text, &format!("{key} = {literal}"), "default"),
                    None => line(text, &format!("# {key}: {}", setting.default), "default"),
                }
            }
        }
    }

    /// Whether the key, a parent or a child is written.
    fn says(&self, key: &str) -> bool {
        let is_within = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let mut keys = self.keys.iter();
        keys.any(|(known, ..)| is_within(known, key) || is_within(key, known))
    }

    fn sections(&self) -> Vec<Section> {
        if self.pool.is_none() {
            return vec![Section::Global];
        }
        let runtime = self.keys.iter().find(|(key, ..)| key == "application.runtime");
        let runtime = runtime.map(|(_, value, _)| value.trim().trim_matches('"'));
        let section = runtime.and_then(Kind::named).and_then(settings::of_runtime);
        let is_routed = self.keys.iter().any(|(key, ..)| key.starts_with("applications."));
        let applications = is_routed.then_some(Section::Applications);
        [Section::Pool]
            .into_iter()
            .chain(section)
            .chain(applications)
            .collect()
    }
}

fn line(text: &mut String, said: &str, source: &str) {
    let _ = writeln!(text, "{said:COLUMN$} # {source}");
}
