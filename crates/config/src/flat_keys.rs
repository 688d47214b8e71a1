//! Flattens a section to dotted keys, so that `ping.path`, `ping = { path = … }` and `[….ping]` are equal and unknown
//! keys can be reported.

use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Kind, Location};
use super::known::{self, Section};
use super::overrides::Override;
use super::report::Report;
use super::resolve::php_fpm::FpmSetting;
use super::source::Source;
use super::units::{Children, Form, Text, Texts, Time};
use super::value::{self, Given, Parse};

/// May be a value or a table.
const LISTEN: &str = "listen";

#[derive(Debug, Clone)]
pub(super) struct Written<T> {
    pub(super) value: T,
    pub(super) location: Location,
    pub(super) key: &'static str,
}

#[derive(Debug, Clone)]
pub(super) enum Field<T> {
    Absent,
    /// Invalid, and already reported.
    Wrong,
    Is(Written<T>),
}

impl<T> Field<T> {
    pub(super) fn written(&self) -> Option<&Written<T>> {
        match self {
            Field::Is(written) => Some(written),
            Field::Absent | Field::Wrong => None,
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Field::Absent)
    }

    pub(super) fn location(&self) -> Option<&Location> {
        self.written().map(|written| &written.location)
    }
}

impl<T: Form> Field<T> {
    pub(super) fn get(&self) -> Option<T::Value> {
        self.written().map(|written| written.value.value().clone())
    }

    pub(super) fn or(&self, default: T::Value) -> T::Value {
        self.get().unwrap_or(default)
    }
}

impl Field<Time> {
    /// A duration with 0 meaning `None`.
    pub(super) fn above_zero(&self) -> Option<Duration> {
        self.get().filter(|time| !time.is_zero())
    }
}

impl Field<Text> {
    pub(super) fn text(&self) -> Option<&str> {
        self.written().map(|written| written.value.0.as_str())
    }
}

impl Written<Texts> {
    /// Each text of the list, at the list's place.
    pub(super) fn each(&self) -> impl Iterator<Item = Written<Text>> {
        self.value.0.iter().map(|text| Written {
            value: Text(text.clone()),
            location: self.location.clone(),
            key: self.key,
        })
    }
}

impl Field<Children> {
    pub(super) fn is_auto(&self) -> bool {
        self.written().is_some_and(|written| written.value.0.is_none())
    }
}

/// A table of free names (environment, php.ini settings), in text order.
pub(super) type Entries<T> = Vec<KeyEntry<T>>;

#[derive(Debug, Clone)]
pub(super) struct KeyEntry<T> {
    /// The name, split at unquoted dots.
    pub(super) name: Vec<String>,
    pub(super) value: T,
    pub(super) location: Location,
    pub(super) table: &'static str,
}

#[derive(Debug)]
pub(super) struct FlatKeys<'t> {
    flat_keys: Vec<FlatKey<'t>>,
    /// The requested keys, which may be written.
    pub(super) known: Vec<&'static str>,
}

#[derive(Debug)]
struct FlatKey<'t> {
    segments: Vec<String>,
    path: String,
    location: Location,
    offset: usize,
    value: Given<'t>,
}

impl<'t> FlatKeys<'t> {
    pub(super) fn new(table: DeTable<'t>, source: &Source<'t>, pool: Option<&str>) -> FlatKeys<'t> {
        let mut flat_keys = Vec::new();
        flatten(table, &[], source, pool, &mut flat_keys);
        flat_keys.sort_by_key(|flat_key| flat_key.offset);
        FlatKeys {
            flat_keys,
            known: Vec::new(),
        }
    }

    pub(super) fn override_by<'o>(&mut self, overrides: impl Iterator<Item = &'o Override>) {
        for one in overrides {
            let mut segments = one.segments.clone();
            // If `listen` is a table, the variable sets its address.
            let has_table = |key: &FlatKey<'_>| key.segments.len() > 1 && key.segments[0] == LISTEN;
            if segments == [LISTEN] && self.flat_keys.iter().any(has_table) {
                segments.push("address".to_owned());
            }
            self.flat_keys.retain(|key| !key.segments.starts_with(&segments));
            let text = toml_edit::Value::from(one.text.as_str());
            let value = one.text.parse::<toml_edit::Value>().ok();
            self.flat_keys.push(FlatKey {
                path: dotted(&segments),
                segments,
                location: one.location(),
                offset: usize::MAX,
                value: Given::Variable(value.unwrap_or_else(|| text.clone()), text),
            });
        }
    }

    pub(super) fn said(&self) -> impl Iterator<Item = (String, String, &Location)> {
        let keys = self.flat_keys.iter();
        keys.map(|key| (key.path.clone(), value::written(&key.value), &key.location))
    }

    /// Keys from php-fpm's files, reversed: php-fpm applies the first entry of a name last.
    pub(super) fn of(said: &[FpmSetting], file: &Location) -> FlatKeys<'t> {
        let said = said.iter().rev().filter(|said| !said.key.is_empty());
        let flat_key = |said: &FpmSetting| {
            let names = said.key.split('.').map(str::to_owned);
            Some(FlatKey {
                segments: names.chain(said.item.clone()).collect(),
                path: said.key.clone(),
                location: said.location.as_ref().unwrap_or(file).clone(),
                offset: 0,
                value: Given::Ini(said.value.clone()?),
            })
        };
        FlatKeys {
            flat_keys: said.filter_map(flat_key).collect(),
            known: Vec::new(),
        }
    }

    pub(super) fn take<T: Parse>(&mut self, key: &'static str, report: &mut Report<'_>) -> Field<T> {
        self.known.push(key);
        let Some(at) = self.flat_keys.iter().position(|flat_key| flat_key.path == key) else {
            return Field::Absent;
        };
        let flat_key = self.flat_keys.remove(at);
        match value::read(&flat_key.value) {
            Ok(value) => Field::Is(Written {
                value,
                location: flat_key.location,
                key,
            }),
            Err(kind) => {
                report.error(&flat_key.location, key, kind);
                Field::Wrong
            }
        }
    }

    pub(super) fn take_entries<T: Parse>(
        &mut self,
        table: &'static str,
        report: &mut Report<'_>,
    ) -> Entries<T> {
        self.known.push(table);
        let above: Vec<String> = table.split('.').map(str::to_owned).collect();
        let depth = above.len();
        let within = |flat_key: &FlatKey<'_>| flat_key.segments.starts_with(&above);
        let (taken, rest) = std::mem::take(&mut self.flat_keys).into_iter().partition(within);
        self.flat_keys = rest;
        let mut entries = Vec::new();
        for flat_key in taken {
            if flat_key.segments.len() == depth {
                // The table itself is a leaf only if it is empty or not a table.
                if !flat_key.value.is_table() {
                    let found = value::shown(&flat_key.value);
                    let expected = "a table; write { NAME = \"value\" }".to_owned();
                    report.error(&flat_key.location, table, Kind::Value { found, expected });
                }
                continue;
            }
            match value::read(&flat_key.value) {
                Ok(value) => {
                    let name = flat_key.segments[depth..].to_vec();
                    entries.push(KeyEntry {
                        name,
                        value,
                        location: flat_key.location,
                        table,
                    });
                }
                Err(kind) => report.error(&flat_key.location, &flat_key.path, kind),
            }
        }
        entries
    }

    pub(super) fn first_location(&self, segment: &str) -> Option<Location> {
        self.flat_keys
            .iter()
            .find(|flat_key| flat_key.segments[0] == segment)
            .map(|flat_key| flat_key.location.clone())
    }

    pub(super) fn discard(&mut self, segment: &str) {
        self.flat_keys.retain(|flat_key| flat_key.segments[0] != segment);
    }

    /// Reports the keys that are left.
    pub(super) fn finish(self, section: Section, report: &mut Report<'_>) {
        let keys = &self.known;
        let mut reported: Vec<&str> = Vec::new();
        for flat_key in &self.flat_keys {
            let within = |key: &&&str| {
                flat_key
                    .path
                    .strip_prefix(**key)
                    .is_some_and(|rest| rest.starts_with('.'))
            };
            match keys.iter().find(within) {
                Some(key) if !known::is_php_fpm(&flat_key.path) => {
                    // Once per table.
                    if !reported.contains(key) {
                        reported.push(key);
                        let remedy = format!("write {key} = followed by one value");
                        report.error(&flat_key.location, key, Kind::rule("is not a table", remedy));
                    }
                }
                _ => {
                    // Only the advice is slow.
                    let advice = match report.is_full() {
                        true => None,
                        false => known::advice(section, &flat_key.path, keys),
                    };
                    let advice = advice.map(|advice| report.name_pool(advice));
                    report.error(&flat_key.location, &flat_key.path, Kind::UnknownKey { advice });
                }
            }
        }
    }
}

fn flatten<'t>(
    table: DeTable<'t>,
    above: &[String],
    source: &Source<'t>,
    pool: Option<&str>,
    flat_keys: &mut Vec<FlatKey<'t>>,
) {
    for (key, value) in table {
        let offset = key.span().start;
        let mut segments = above.to_vec();
        segments.push(key.into_inner().into_owned());
        match Spanned::into_inner(value) {
            DeValue::Table(inner) if !inner.is_empty() => flatten(inner, &segments, source, pool, flat_keys),
            mut value => {
                if let Some(pool) = pool {
                    name_pool(&mut value, pool);
                }
                let path = dotted(&segments);
                flat_keys.push(FlatKey {
                    segments,
                    path,
                    location: source.location(offset),
                    offset,
                    value: Given::Toml(value),
                });
            }
        }
    }
}

fn name_pool(value: &mut DeValue<'_>, pool: &str) {
    match value {
        DeValue::String(text) if text.contains("$pool") => *text = text.replace("$pool", pool).into(),
        DeValue::Array(items) => items.iter_mut().for_each(|item| name_pool(item.get_mut(), pool)),
        _ => {}
    }
}

/// The path in TOML syntax.
pub(super) fn dotted(segments: &[String]) -> String {
    let mut path = String::new();
    for segment in segments {
        if !path.is_empty() {
            path.push('.');
        }
        let bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !segment.is_empty() && segment.bytes().all(bare) {
            path.push_str(segment);
        } else {
            path.push_str(&value::quoted(segment));
        }
    }
    path
}
