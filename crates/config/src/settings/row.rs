//! What a row of the table is, and how it is written.

use super::directive::{Directive, Effect, Form, Limit, Shown};
use crate::LogLevel;

/// The table of the TOML that a key belongs in. A row without a key says by it where its directive belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// `[global]`
    Global,
    /// `[pool.NAME]`
    Pool,
    /// `[pool.NAME.application]` with `runtime = "php"`
    Php,
    /// `[pool.NAME.application]` with `runtime = "cgi"`
    Cgi,
    /// `[pool.NAME.application]` with `runtime = "fastcgi"`
    FastCgi,
    /// `[pool.NAME.application]` with `runtime = "http"` or `"node"`
    Http,
    /// `[pool.NAME.application]` with `runtime = "wsgi"`, `"asgi"` or `"rack"`
    Wrapped,
    /// `[pool.NAME.applications]`
    Applications,
    /// `[jobs]`
    Jobs,
    /// `[jobs.queue.NAME]`
    JobQueue,
    /// `[jobs.schedule.NAME]`
    JobSchedule,
}

impl Section {
    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Section::Global => "[global]",
            Section::Pool => "[pool.NAME]",
            Section::Applications => "[pool.NAME.applications]",
            Section::Jobs => "[jobs]",
            Section::JobQueue => "[jobs.queue.NAME]",
            Section::JobSchedule => "[jobs.schedule.NAME]",
            Section::Php | Section::Cgi | Section::FastCgi | Section::Http | Section::Wrapped => {
                "[pool.NAME.application]"
            }
        }
    }

    /// Is it that of one runtime?
    pub fn is_application(self) -> bool {
        !matches!(self, Section::Global | Section::Pool | Section::Applications) && !self.is_of_jobs()
    }

    /// Is it about background jobs?
    pub fn is_of_jobs(self) -> bool {
        matches!(self, Section::Jobs | Section::JobQueue | Section::JobSchedule)
    }
}

/// How the sample shows a row. Values are written as in TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// Off, with its default, which is then a value in backquotes.
    Default,
    /// Off, with an example.
    Off(&'static str),
    /// On, with an example.
    On(&'static str),
    /// In a comment only: another key of the sample says the same. php-fpm's sample has it on.
    Beside(&'static str),
    /// Not at all: another row shows it.
    Nowhere,
}

/// Why a directive of php-fpm's has no key.
#[derive(Debug, Clone, Copy)]
pub struct Absence {
    /// What there is instead.
    pub instead: &'static str,
    /// What to do about one that is written.
    pub advice: &'static str,
}

/// One setting: its key, its directive, or both.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Where it is written.
    pub section: Section,
    /// Its name in the TOML; empty: it has none, and `absence` says why.
    pub key: &'static str,
    /// What its values look like in the TOML.
    pub values: &'static str,
    /// The value that it has when it is not written: in backquotes as it would be written, or in words.
    pub default: &'static str,
    /// What it means. Other settings are named by their keys.
    pub meaning: &'static str,
    /// What php-fpm has in its place, or does otherwise, beside the directive's name.
    pub in_php_fpm: &'static str,
    /// How the sample shows it.
    pub sample: Sample,
    /// The directive that is the same in php-fpm; `None`: there is none.
    pub directive: Option<Directive>,
    /// Why there is no key.
    pub absence: Option<Absence>,
}

/// A row with a key.
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
        in_php_fpm: "",
        sample: Sample::Default,
        directive: None,
        absence: None,
    }
}

/// A row of a directive that has no key: `instead` and `advice` are its [`Absence`].
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
    /// The directive that is the same in php-fpm, with the value that it has there when it is not written.
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
            ..self
        }
    }

    /// The same, for one of the key's own name.
    pub(super) const fn same(self, form: Form, default: &'static str) -> Setting {
        self.fpm(self.key, form, default)
    }

    /// How the dump shows the directive.
    pub(super) const fn shown(mut self, shown: Shown) -> Setting {
        if let Some(directive) = &mut self.directive {
            directive.shown = shown;
        }
        self
    }

    /// What is to be said of the directive alone.
    pub(super) const fn note(mut self, note: &'static str) -> Setting {
        if let Some(directive) = &mut self.directive {
            directive.note = note;
        }
        self
    }

    /// The least and the greatest number that php-fpm takes, and what it says of another.
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

    /// There is nothing to be done about the directive here.
    pub(super) const fn needless(mut self) -> Setting {
        if let Some(directive) = &mut self.directive {
            directive.effect = Effect::Needless;
        }
        self
    }

    /// How the sample shows it, if not with its default.
    pub(super) const fn sample(self, sample: Sample) -> Setting {
        Setting { sample, ..self }
    }

    /// What php-fpm has in its place, or does otherwise.
    pub(super) const fn in_php_fpm(self, there: &'static str) -> Setting {
        Setting {
            in_php_fpm: there,
            ..self
        }
    }
}
