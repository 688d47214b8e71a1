//! The side of a row that php-fpm's own files see.

use crate::LogLevel;

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Text; `$pool` stands for the pool's name.
    Text,
    /// Words with commas between them.
    Commas,
    /// Words with blanks between them.
    Blanks,
    /// Permission bits, as octal digits.
    Octal,
    /// A boolean.
    Flag,
    /// A whole number.
    Number,
    /// Seconds, or a number with `s`, `m`, `h` or `d`.
    Time,
    /// The name of a log level.
    Level,
    /// The name of a syslog facility.
    Facility,
    /// A number of bytes or `unlimited`.
    Core,
    /// `static`, `dynamic` or `ondemand`.
    Manager,
    /// A list: `name[key] = value`.
    List,
}

/// How the dump shows a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// As its form says.
    Plain,
    /// With an `s` behind it.
    Seconds,
    /// `undefined` while it is not set.
    Priority,
    /// Not at all.
    Never,
}

/// What a directive does here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// What it does in php-fpm.
    Same,
    /// It is about how php-fpm works inside; there is nothing to be done about it here.
    Needless,
}

/// One directive. What it means is said by its row.
#[derive(Debug, Clone, Copy)]
pub struct Directive {
    pub name: &'static str,
    /// What its values look like.
    pub form: Form,
    /// The value that it has when it is not written, as it would be written; empty: none.
    pub default: &'static str,
    /// How the dump shows it.
    pub shown: Shown,
    /// What it does here.
    pub effect: Effect,
    /// What is to be said of it beyond the row's meaning; may be empty.
    pub note: &'static str,
    /// The numbers that php-fpm takes.
    pub limit: Option<Limit>,
}

/// The numbers that php-fpm takes, and what it says of another.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The least.
    pub least: i32,
    /// The greatest.
    pub most: i32,
    /// How bad it is.
    pub level: LogLevel,
    /// What php-fpm says.
    pub words: &'static str,
}
