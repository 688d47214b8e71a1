//! The php-fpm directive of a setting.

use crate::LogLevel;

/// The syntax of a value.
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
    /// With an `s` appended.
    Seconds,
    /// `undefined` if it is not set.
    Priority,
    /// Not at all.
    Never,
}

/// What a directive does in forkyard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The same as in php-fpm.
    Same,
    /// Nothing: it concerns php-fpm's internals.
    Needless,
}

/// One directive; its row has the meaning.
#[derive(Debug, Clone, Copy)]
pub struct Directive {
    pub name: &'static str,
    /// The syntax of its values.
    pub form: Form,
    /// The default, in the file's syntax; empty: none.
    pub default: &'static str,
    /// How the `-tt` dump shows it.
    pub shown: Shown,
    /// What it does in forkyard.
    pub effect: Effect,
    /// A note in addition to the row's meaning; may be empty.
    pub note: &'static str,
    /// The numbers that php-fpm takes.
    pub limit: Option<Limit>,
}

/// A permitted range, and php-fpm's message for other numbers.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// The least.
    pub least: i32,
    /// The greatest.
    pub most: i32,
    /// The message's level.
    pub level: LogLevel,
    /// The message.
    pub words: &'static str,
}
