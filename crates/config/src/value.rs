//! Written values, whatever syntax they are written in.

use super::error::Kind;
use super::units;
use toml::de::DeValue;

const MAX_SHOWN: usize = 80;

#[derive(Debug)]
pub(super) enum Given<'t> {
    Toml(DeValue<'t>),
    /// From a php-fpm file, converted to TOML.
    Ini(toml_edit::Value),
    /// From the environment: parsed as TOML, and as text.
    Variable(toml_edit::Value, toml_edit::Value),
}

impl Given<'_> {
    pub(super) fn is_table(&self) -> bool {
        matches!(self, Given::Toml(value) if value.is_table())
    }
}

/// A value without its syntax.
#[derive(Debug)]
pub(super) enum Plain<'v> {
    Text(&'v str),
    Whole(i64),
    Float(f64),
    Flag(bool),
    List(Vec<Plain<'v>>),
    Table(Vec<(&'v str, Plain<'v>)>),
    /// A value that no key takes, as messages show it.
    Other(String),
}

pub(super) trait Parse: Sized {
    /// # Errors
    /// The value, and the expected form.
    fn parse(value: &Plain<'_>) -> Result<Self, Kind>;
}

impl<'v> Plain<'v> {
    fn of_toml(value: &'v DeValue<'_>) -> Plain<'v> {
        match value {
            DeValue::String(text) => Plain::Text(text),
            DeValue::Boolean(flag) => Plain::Flag(*flag),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                parsed.map_or_else(|_| Plain::Other(number.to_string()), Plain::Whole)
            }
            DeValue::Float(number) => {
                let parsed = number.as_str().parse();
                parsed.map_or_else(|_| Plain::Other(number.as_str().to_owned()), Plain::Float)
            }
            DeValue::Datetime(time) => Plain::Other(time.to_string()),
            DeValue::Array(items) => {
                let items = items.iter().map(|item| Plain::of_toml(item.get_ref()));
                Plain::List(items.collect())
            }
            DeValue::Table(table) => {
                let entries = table.iter();
                let entry = |(key, value): (&'v toml::Spanned<_>, &'v toml::Spanned<DeValue<'_>>)| {
                    let key: &'v std::borrow::Cow<'_, str> = key.get_ref();
                    (&**key, Plain::of_toml(value.get_ref()))
                };
                Plain::Table(entries.map(entry).collect())
            }
        }
    }

    fn of_ini(value: &'v toml_edit::Value) -> Plain<'v> {
        use toml_edit::Value::{Array, Boolean, InlineTable, Integer, String};
        match value {
            String(text) => Plain::Text(text.value()),
            Integer(number) => Plain::Whole(*number.value()),
            Boolean(flag) => Plain::Flag(*flag.value()),
            Array(items) => Plain::List(items.iter().map(Plain::of_ini).collect()),
            InlineTable(table) => Plain::Table(
                table
                    .iter()
                    .map(|(key, value)| (key, Plain::of_ini(value)))
                    .collect(),
            ),
            other => Plain::Other(other.to_string()),
        }
    }

    fn shown(&self) -> String {
        match self {
            Plain::Text(text) => quoted(text),
            Plain::Whole(number) => number.to_string(),
            Plain::Float(number) => number.to_string(),
            Plain::Flag(flag) => flag.to_string(),
            Plain::List(_) => "an array".to_owned(),
            Plain::Table(_) => "a table".to_owned(),
            Plain::Other(text) => text.clone(),
        }
    }

    pub(super) fn is_not(&self, expected: &str) -> Kind {
        let found = self.shown();
        let expected = match units::meant(expected, &found) {
            Some(meant) => format!("{expected}; write {meant}"),
            None => expected.to_owned(),
        };
        Kind::Value { found, expected }
    }
}

pub(super) fn read<T: Parse>(value: &Given<'_>) -> Result<T, Kind> {
    match value {
        Given::Toml(value) => T::parse(&Plain::of_toml(value)),
        Given::Ini(value) => T::parse(&Plain::of_ini(value)),
        Given::Variable(value, text) => {
            T::parse(&Plain::of_ini(value)).or_else(|wrong| T::parse(&Plain::of_ini(text)).map_err(|_| wrong))
        }
    }
}

pub(super) fn written(value: &Given<'_>) -> String {
    match value {
        Given::Toml(value) => as_toml(value).to_string(),
        Given::Ini(value) | Given::Variable(value, _) => value.to_string(),
    }
}

fn as_toml(value: &DeValue<'_>) -> toml_edit::Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Array(items) => items.iter().map(|item| as_toml(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let entries = table.iter();
            let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                (key.to_string(), as_toml(value.get_ref()))
            };
            entries.map(entry).collect()
        }
        DeValue::Integer(number) => {
            let parsed = i64::from_str_radix(number.as_str(), number.radix());
            parsed.map_or_else(|_| number.to_string().into(), Into::into)
        }
        DeValue::Float(number) => {
            let parsed = number.as_str().parse::<f64>();
            parsed.map_or_else(|_| number.to_string().into(), Into::into)
        }
        DeValue::Datetime(time) => (*time).to_string().into(),
    }
}

pub(super) fn shown(value: &Given<'_>) -> String {
    match value {
        Given::Toml(value) => Plain::of_toml(value).shown(),
        Given::Ini(value) | Given::Variable(value, _) => value.to_string(),
    }
}

pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}
