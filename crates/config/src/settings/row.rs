//! The type of a row, its constructors, and the macro that makes a draft of rows.

use super::directive::{Directive, Effect, Form, Limit, Shown};
use super::sections::Section;
use crate::LogLevel;
use crate::flat_keys::{Entries, Field, FlatKeys};
use crate::report::Report;
use crate::value::Parse;

/// How the sample shows a row, with values in TOML's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// Commented out, with the default, which has to be a value in backquotes.
    Default,
    /// Commented out, with an example.
    Off(&'static str),
    /// Set, with an example.
    On(&'static str),
    /// In a comment only, because another key of the sample does the same. php-fpm's sample has it on.
    Beside(&'static str),
    /// Left out of the sample, because another row shows it.
    Nowhere,
}

/// The reason why a php-fpm directive has no key.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    /// The replacement.
    pub instead: &'static str,
    /// The advice for a file that has the directive.
    pub advice: &'static str,
}

/// One setting: its key, its directive, or both.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub section: Section,
    /// The key; empty if there is none, and `absence` has the reason.
    pub key: &'static str,
    /// The form of the values in TOML.
    pub values: &'static str,
    /// The default: a written value in backquotes, or a description.
    pub default: &'static str,
    /// The meaning. It names other settings by their keys.
    pub meaning: &'static str,
    /// php-fpm's equivalent or its difference, apart from the directive's name. A row without a directive has "not there" by
    /// default.
    pub in_php_fpm: &'static str,
    pub sample: Sample,
    /// The equivalent php-fpm directive, or `None`.
    pub directive: Option<Directive>,
    /// Why there is no key.
    pub absence: Option<Absence>,
}

pub(super) const fn key(
    section: Section,
    key: &'static str,
    values: &'static str,
    default: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting {
        section,
        key,
        values,
        default,
        meaning,
        in_php_fpm: "not there",
        sample: Sample::Default,
        directive: None,
        absence: None,
    }
}

/// A row of a directive without a key: `instead` and `advice` are its [`Absence`].
pub(super) const fn without_key(
    section: Section,
    name: &'static str,
    form: Form,
    default: &'static str,
    meaning: &'static str,
    instead: &'static str,
    advice: &'static str,
) -> Setting {
    Setting {
        absence: Some(Absence { instead, advice }),
        ..key(section, "", "", "", meaning).fpm(name, form, default)
    }
}

impl Setting {
    /// The key with its tables below `[pool.NAME]`, such as `application.version`.
    pub fn path(&self) -> String {
        format!("{}{}", self.section.above(), self.key)
    }

    /// Returns the default as a written value, if it is one.
    pub(crate) fn literal(&self) -> Option<&'static str> {
        let text = self.default.strip_prefix('`')?.strip_suffix('`')?;
        Some(text).filter(|text| !text.contains('`'))
    }

    /// Adds the equivalent php-fpm directive, with php-fpm's default.
    pub(super) const fn fpm(self, name: &'static str, form: Form, default: &'static str) -> Setting {
        Setting {
            directive: Some(Directive {
                name,
                form,
                default,
                shown: Shown::Plain,
                effect: Effect::Same,
                note: "",
                limit: None,
            }),
            in_php_fpm: "",
            ..self
        }
    }

    /// Adds the php-fpm directive with the key's own name.
    pub(super) const fn same(self, form: Form, default: &'static str) -> Setting {
        self.fpm(self.key, form, default)
    }

    pub(super) const fn shown(mut self, shown: Shown) -> Setting {
        if let Some(directive) = &mut self.directive {
            directive.shown = shown;
        }
        self
    }

    /// Adds a note on the directive.
    pub(super) const fn note(mut self, note: &'static str) -> Setting {
        if let Some(directive) = &mut self.directive {
            directive.note = note;
        }
        self
    }

    /// Adds the range that php-fpm accepts, and its message for other numbers.
    pub(super) const fn limit(
        mut self,
        least: i32,
        most: i32,
        level: LogLevel,
        words: &'static str,
    ) -> Setting {
        if let Some(directive) = &mut self.directive {
            directive.limit = Some(Limit {
                least,
                most,
                level,
                words,
            });
        }
        self
    }

    /// Marks the directive as without effect here.
    pub(super) const fn needless(mut self) -> Setting {
        if let Some(directive) = &mut self.directive {
            directive.effect = Effect::Needless;
        }
        self
    }

    /// Sets how the sample shows it, if not with its default.
    pub(super) const fn sample(self, sample: Sample) -> Setting {
        Setting { sample, ..self }
    }

    /// Sets php-fpm's equivalent or difference.
    pub(super) const fn in_php_fpm(self, there: &'static str) -> Setting {
        Setting {
            in_php_fpm: there,
            ..self
        }
    }
}

/// A part of a draft: the value of a key, or the entries of a table.
pub(crate) trait Read: Sized {
    fn read(key: &'static str, flat_keys: &mut FlatKeys<'_>, report: &mut Report<'_>) -> Self;
}

impl<T: Parse> Read for Field<T> {
    fn read(key: &'static str, flat_keys: &mut FlatKeys<'_>, report: &mut Report<'_>) -> Field<T> {
        flat_keys.take(key, report)
    }
}

impl<T: Parse> Read for Entries<T> {
    fn read(key: &'static str, flat_keys: &mut FlatKeys<'_>, report: &mut Report<'_>) -> Entries<T> {
        flat_keys.take_entries(key, report)
    }
}

/// Defines a section: its rows (`ROWS`), and its draft with the keys as written. `below`: the prefix of its keys in the
/// parsed table. `_`: a row without a field. `rows elsewhere`: fields with rows in another section's list, where php-fpm's
/// dump has them.
macro_rules! section {
    (
        $draft:ident of $section:expr, below $above:literal {
            $(
                $(_ = $other:expr,)*
                $field:ident: $type:ty =
                    key($key:literal, $($about:expr),+) $(.$method:ident($($argument:expr),*))*,
            )*
        }
        $(rows elsewhere { $($extra:ident: $extra_type:ty = $extra_key:literal,)* })?
    ) => {
        #[derive(Debug)]
        pub(crate) struct $draft {
            $(pub(crate) $field: $type,)*
            $($(pub(crate) $extra: $extra_type,)*)?
        }

        impl $draft {
            pub(super) const ROWS: &[$crate::settings::Setting] = &[$(
                $($other,)*
                $crate::settings::row::key($section, $key, $($about),+)$(.$method($($argument),*))*,
            )*];

            pub(crate) fn read(
                flat_keys: &mut $crate::flat_keys::FlatKeys<'_>,
                report: &mut $crate::report::Report<'_>,
            ) -> $draft {
                use $crate::settings::row::Read;
                $draft {
                    $($field: Read::read(concat!($above, $key), flat_keys, report),)*
                    $($($extra: Read::read($extra_key, flat_keys, report),)*)?
                }
            }
        }
    };
}
pub(super) use section;
