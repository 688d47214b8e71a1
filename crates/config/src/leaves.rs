//! One section's keys as a flat list of dotted paths, so that `ping.path`, `ping = { path = … }` and a table
//! `[….ping]` are the same thing, and so that unknown keys can be reported.

use std::time::Duration;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Kind, Place};
use super::known::{self, Section};
use super::report::Report;
use super::said::Said;
use super::source::Source;
use super::units::{Form, Time};
use super::value::{self, Given};

/// A value that was written, and where its key is.
#[derive(Debug, Clone)]
pub(super) struct Written<T> {
    pub(super) value: T,
    pub(super) place: Place,
    pub(super) key: &'static str,
}

/// What is known of a key after reading.
#[derive(Debug, Clone)]
pub(super) enum Field<T> {
    /// Nothing was written.
    Absent,
    /// Something was written that can't be read; that is already reported.
    Wrong,
    /// This was written.
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
}

impl<T: Form> Field<T> {
    /// The value, if it was written.
    pub(super) fn get(&self) -> Option<T::Value> {
        self.written().map(|written| written.value.value().clone())
    }

    /// The value, or this one.
    pub(super) fn or(&self, default: T::Value) -> T::Value {
        self.get().unwrap_or(default)
    }
}

impl Field<Time> {
    /// A duration for which 0 is the same as none.
    pub(super) fn above_zero(&self) -> Option<Duration> {
        self.get().filter(|time| !time.is_zero())
    }
}

/// The entries of a table of free names (environment, php.ini settings), in the order of the text.
pub(super) type Entries<T> = Vec<Entry<T>>;

/// One entry of such a table.
#[derive(Debug, Clone)]
pub(super) struct Entry<T> {
    /// The name; its parts, if it was written with dots outside quotes.
    pub(super) name: Vec<String>,
    pub(super) value: T,
    pub(super) place: Place,
    pub(super) table: &'static str,
}

/// The keys of one section that have not been read yet.
#[derive(Debug)]
pub(super) struct Leaves<'t> {
    leaves: Vec<Leaf<'t>>,
}

#[derive(Debug)]
struct Leaf<'t> {
    segments: Vec<String>,
    path: String,
    place: Place,
    offset: usize,
    value: Given<'t>,
}

impl<'t> Leaves<'t> {
    /// Flattens a section. `$pool` in its strings becomes `pool`.
    pub(super) fn new(table: DeTable<'t>, source: &Source<'t>, pool: Option<&str>) -> Leaves<'t> {
        let mut leaves = Vec::new();
        flatten(table, &[], source, pool, &mut leaves);
        leaves.sort_by_key(|leaf| leaf.offset);
        Leaves { leaves }
    }

    /// What files of php-fpm's say. Of entries with one name php-fpm applies the first last: the order is reversed.
    pub(super) fn of(said: &[Said], file: &Place) -> Leaves<'t> {
        let said = said.iter().rev().filter(|said| !said.key.is_empty());
        let leaf = |said: &Said| {
            let names = said.key.split('.').map(str::to_owned);
            Some(Leaf {
                segments: names.chain(said.item.clone()).collect(),
                path: said.key.clone(),
                place: said.place.as_ref().unwrap_or(file).clone(),
                offset: 0,
                value: Given::Ini(said.value.clone()?),
            })
        };
        Leaves {
            leaves: said.filter_map(leaf).collect(),
        }
    }

    /// Takes a key out and reads its value; a value that can't be read is reported.
    pub(super) fn take<T: DeserializeOwned>(
        &mut self,
        key: &'static str,
        report: &mut Report<'_>,
    ) -> Field<T> {
        let Some(at) = self.leaves.iter().position(|leaf| leaf.path == key) else {
            return Field::Absent;
        };
        let leaf = self.leaves.remove(at);
        match value::read(&leaf.value) {
            Ok(value) => Field::Is(Written {
                value,
                place: leaf.place,
                key,
            }),
            Err(kind) => {
                report.error(&leaf.place, key, kind);
                Field::Wrong
            }
        }
    }

    /// Takes a table of free names out.
    pub(super) fn take_entries<T: DeserializeOwned>(
        &mut self,
        table: &'static str,
        report: &mut Report<'_>,
    ) -> Entries<T> {
        let depth = table.split('.').count();
        let within = |leaf: &Leaf<'_>| {
            leaf.segments.len() >= depth && leaf.segments.iter().zip(table.split('.')).all(|(a, b)| a == b)
        };
        let (taken, rest) = std::mem::take(&mut self.leaves).into_iter().partition(within);
        self.leaves = rest;
        let mut entries = Vec::new();
        for leaf in taken {
            if leaf.segments.len() == depth {
                // The table itself is a leaf only if it is empty, or no table at all.
                if !leaf.value.is_table() {
                    let found = value::shown(&leaf.value);
                    let expected = "a table; write { NAME = \"value\" }".to_owned();
                    report.error(&leaf.place, table, Kind::Value { found, expected });
                }
                continue;
            }
            match value::read(&leaf.value) {
                Ok(value) => {
                    let name = leaf.segments[depth..].to_vec();
                    entries.push(Entry {
                        name,
                        value,
                        place: leaf.place,
                        table,
                    });
                }
                Err(kind) => report.error(&leaf.place, &leaf.path, kind),
            }
        }
        entries
    }

    /// Does any key start with this segment?
    pub(super) fn contains(&self, segment: &str) -> bool {
        self.leaves.iter().any(|leaf| leaf.segments[0] == segment)
    }

    /// The place of the first key that starts with this segment.
    pub(super) fn first_place(&self, segment: &str) -> Option<Place> {
        self.leaves
            .iter()
            .find(|leaf| leaf.segments[0] == segment)
            .map(|leaf| leaf.place.clone())
    }

    /// Drops all keys that start with this segment.
    pub(super) fn discard(&mut self, segment: &str) {
        self.leaves.retain(|leaf| leaf.segments[0] != segment);
    }

    /// Reports what is left: these keys mean nothing here.
    pub(super) fn finish(self, section: Section, keys: &[&str], report: &mut Report<'_>) {
        let mut reported: Vec<&str> = Vec::new();
        for leaf in &self.leaves {
            let within = |key: &&&str| {
                leaf.path
                    .strip_prefix(**key)
                    .is_some_and(|rest| rest.starts_with('.'))
            };
            match keys.iter().find(within) {
                Some(key) if !known::is_php_fpm(&leaf.path) => {
                    // Only once for all that is in the table.
                    if !reported.contains(key) {
                        reported.push(key);
                        let remedy = format!("write {key} = followed by one value");
                        report.error(
                            &leaf.place,
                            key,
                            Kind::Rule {
                                problem: "is not a table".to_owned(),
                                remedy,
                            },
                        );
                    }
                }
                _ => {
                    let advice = known::advice(section, &leaf.path, keys);
                    let advice = advice.map(|advice| report.name_pool(advice));
                    report.error(&leaf.place, &leaf.path, Kind::UnknownKey { advice });
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
    leaves: &mut Vec<Leaf<'t>>,
) {
    for (key, value) in table {
        let offset = key.span().start;
        let mut segments = above.to_vec();
        segments.push(key.into_inner().into_owned());
        match Spanned::into_inner(value) {
            DeValue::Table(inner) if !inner.is_empty() => flatten(inner, &segments, source, pool, leaves),
            mut value => {
                if let Some(pool) = pool {
                    name_pool(&mut value, pool);
                }
                let path = dotted(&segments);
                leaves.push(Leaf {
                    segments,
                    path,
                    place: source.place(offset),
                    offset,
                    value: Given::Toml(value),
                });
            }
        }
    }
}

/// Replaces `$pool` in a string, or in the strings of an array.
fn name_pool(value: &mut DeValue<'_>, pool: &str) {
    match value {
        DeValue::String(text) if text.contains("$pool") => *text = text.replace("$pool", pool).into(),
        DeValue::Array(items) => items.iter_mut().for_each(|item| name_pool(item.get_mut(), pool)),
        _ => {}
    }
}

/// A path as it would be written.
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
