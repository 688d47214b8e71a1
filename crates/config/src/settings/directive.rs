//! The php-fpm side of a row.

use crate::LogLevel;

/// The form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Text; `$pool` stands for the pool's name.
    Text,
    /// Words separated by commas.
    Commas,
    /// Words separated by blanks.
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

/// How php-fpm's `-tt` dump shows a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// In the syntax of its [`Form`].
    Plain,
    Seconds,
    /// `undefined` if it is not set.
    Priority,
    /// Not shown in the dump.
    Never,
}

/// The effect of a directive here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// As in php-fpm.
    Same,
    /// It concerns php-fpm's internals and has no effect here.
    Needless,
}

/// A directive. Its row has its meaning.
#[derive(Debug, Clone, Copy)]
pub struct Directive {
    pub name: &'static str,
    pub form: Form,
    /// The default, as it would be written; empty if there is none.
    pub default: &'static str,
    pub shown: Shown,
    pub effect: Effect,
    /// A note in addition to the row's meaning; may be empty.
    pub note: &'static str,
    /// The numbers that php-fpm accepts.
    pub limit: Option<Limit>,
}

/// The numbers that php-fpm accepts, and its message for others.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub least: i32,
    pub most: i32,
    pub level: LogLevel,
    /// php-fpm's message.
    pub words: &'static str,
}
