//! A serde deserializer for one value, with separate "found" and "expected" in errors.

use std::fmt::{self, Display};

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, Error, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use toml::de::DeValue;

use super::error::Kind;
use super::units;

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

pub(super) fn read<'v, T: Deserialize<'v>>(value: &'v Given<'v>) -> Result<T, Kind> {
    let value = match value {
        Given::Toml(value) => Value::Toml(value),
        Given::Ini(value) => Value::Ini(value),
        Given::Variable(value, text) => {
            return T::deserialize(Value::Ini(value))
                .or_else(|error| T::deserialize(Value::Ini(text)).map_err(|_| error.0));
        }
    };
    T::deserialize(value).map_err(|error| error.0)
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
    let value = match value {
        Given::Toml(value) => value,
        Given::Ini(value) | Given::Variable(value, _) => return value.to_string(),
    };
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

enum Value<'v> {
    Toml(&'v DeValue<'v>),
    Ini(&'v toml_edit::Value),
}

impl<'v> Value<'v> {
    fn visit_ini<V: Visitor<'v>>(value: &'v toml_edit::Value, visitor: V) -> Result<V::Value, ValueError> {
        use toml_edit::Value::{Array, Boolean, Integer, String};
        match value {
            String(text) => visitor.visit_borrowed_str(text.value()),
            Integer(number) => visitor.visit_i64(*number.value()),
            Boolean(flag) => visitor.visit_bool(*flag.value()),
            Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Value::Ini))),
            other => Err(ValueError::invalid_value(
                Unexpected::Other(&other.to_string()),
                &visitor,
            )),
        }
    }
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        let value = match self {
            Value::Toml(value) => value,
            Value::Ini(value) => return Value::visit_ini(value, visitor),
        };
        match value {
            DeValue::String(text) => visitor.visit_borrowed_str(text),
            DeValue::Boolean(flag) => visitor.visit_bool(*flag),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => visitor.visit_i64(number),
                Err(_) => Err(ValueError::invalid_value(
                    Unexpected::Other(&number.to_string()),
                    &visitor,
                )),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(float) => visitor.visit_f64(float),
                Err(_) => Err(ValueError::invalid_value(
                    Unexpected::Other(number.as_str()),
                    &visitor,
                )),
            },
            DeValue::Datetime(time) => Err(ValueError::invalid_value(
                Unexpected::Other(&time.to_string()),
                &visitor,
            )),
            DeValue::Array(items) => visitor.visit_seq(SeqDeserializer::new(
                items.iter().map(|item| Value::Toml(item.get_ref())),
            )),
            DeValue::Table(table) => visitor.visit_map(MapDeserializer::new(
                table
                    .iter()
                    .map(|(key, value)| (key.get_ref().as_ref(), Value::Toml(value.get_ref()))),
            )),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'v> IntoDeserializer<'v, ValueError> for Value<'v> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

#[derive(Debug)]
struct ValueError(Kind);

impl Error for ValueError {
    fn custom<T: Display>(message: T) -> Self {
        let problem = message.to_string();
        ValueError(Kind::Rule {
            problem,
            remedy: "see the documentation of this key".to_owned(),
        })
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Str(text) => quoted(text),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            Unexpected::Bool(flag) => flag.to_string(),
            Unexpected::Seq => "an array".to_owned(),
            Unexpected::Map => "a table".to_owned(),
            Unexpected::Other(text) => text.to_owned(),
            other => other.to_string(),
        };
        let expected = expected.to_string();
        let expected = match units::meant(&expected, &found) {
            Some(meant) => format!("{expected}; write {meant}"),
            None => expected,
        };
        ValueError(Kind::Value { found, expected })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }
}

impl Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ValueError {}
