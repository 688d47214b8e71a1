//! Values that may be arrays.

use super::super::application::RequestSettings;
use super::{Counts, RequestRule, Text, Texts, Whole};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};
use std::fmt;

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FormVisitor;
        impl<'de> Visitor<'de> for FormVisitor {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of strings; write [\"one\", \"two\"]")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(Text(text)) = items.next_element()? {
                    texts.push(text);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_any(FormVisitor)
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FormVisitor;
        impl<'de> Visitor<'de> for FormVisitor {
            type Value = Counts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of requests, or an array of numbers; write 1000, or [50, 100, 1000]")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Counts, E> {
                let count = u64::try_from(number);
                let count = count.map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))?;
                Ok(Counts(vec![count]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Counts, A::Error> {
                let mut counts = Vec::new();
                while let Some(Whole(number)) = items.next_element()? {
                    let count = u64::try_from(number);
                    counts
                        .push(count.map_err(|_| A::Error::invalid_value(Unexpected::Signed(number), &self))?);
                }
                Ok(Counts(counts))
            }
        }
        deserializer.deserialize_any(FormVisitor)
    }
}

impl<'de> Deserialize<'de> for RequestRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FormVisitor;
        impl<'de> Visitor<'de> for FormVisitor {
            type Value = RequestRule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a choice of settings; write \"harmless\", \"all\", \"none\", or names as [\"memory_limit\"]")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RequestRule, E> {
                let rule = RequestSettings::from_word(text).map(RequestRule);
                rule.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RequestRule, A::Error> {
                let mut names = Vec::new();
                while let Some(Text(name)) = items.next_element()? {
                    names.push(name);
                }
                Ok(RequestRule(RequestSettings::Only(names)))
            }
        }
        deserializer.deserialize_any(FormVisitor)
    }
}
