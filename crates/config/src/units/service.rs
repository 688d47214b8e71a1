//! Values about supervision and worker counts.

use super::super::flat_keys::Field;
use super::super::model::OnSigterm;
use super::Form;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TermRule(pub(crate) OnSigterm);

/// A number, or `None` for `"auto"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Children(pub(crate) Option<i64>);

impl Field<Children> {
    pub(crate) fn is_auto(&self) -> bool {
        self.written().is_some_and(|written| written.value.0.is_none())
    }
}

impl Form for TermRule {
    type Value = OnSigterm;

    fn value(&self) -> &OnSigterm {
        &self.0
    }
}

form!(
    TermRule,
    "what SIGTERM can mean; write \"terminate\" or \"finish\"",
    str | text
        | match text {
            "terminate" => Some(TermRule(OnSigterm::Terminate)),
            "finish" => Some(TermRule(OnSigterm::Finish)),
            _ => None,
        }
);
form!(
    Children,
    "a number of workers; write digits without quotes, for example 10, or \"auto\"",
    str | text | (text == "auto").then_some(Children(None)),
    int | number | Some(Children(Some(number)))
);
