//! Collects errors and warnings while a configuration is read and resolved.

use super::error::{Diagnostic, Kind, Location, Severity};
use super::flat_keys::{Field, KeyEntry, Written};
use super::model::LogLevel;
use super::overrides::is_variable;
use super::units::Whole;
use super::world::World;
use std::ops::{Deref, DerefMut};

#[derive(Debug, Default)]
pub(super) struct Diagnostics {
    list: Vec<Diagnostic>,
    others: Vec<(usize, String)>,
    dialect: Dialect,
    most: Option<usize>,
    has_more: bool,
}

#[derive(Debug, Default)]
enum Dialect {
    #[default]
    Toml,
    /// php-fpm's configuration. php-fpm's rules have already been checked, and forkyard's don't apply. Collects the
    /// messages that php-fpm would print, up to the first error, where php-fpm exits.
    PhpFpm {
        said: Vec<(LogLevel, String)>,
        has_failed: bool,
        line_end: &'static str,
    },
}

impl Diagnostics {
    /// For php-fpm's own files. `line_end`: what php-fpm appends to some messages.
    pub(super) fn php_fpm(line_end: &'static str) -> Diagnostics {
        let dialect = Dialect::PhpFpm {
            said: Vec::new(),
            has_failed: false,
            line_end,
        };
        Diagnostics {
            dialect,
            ..Diagnostics::default()
        }
    }

    /// For untrusted files: reports at most `most` diagnostics and a note that there are more.
    pub(super) fn at_most(most: usize) -> Diagnostics {
        Diagnostics {
            most: Some(most),
            ..Diagnostics::default()
        }
    }

    pub(super) fn is_php_fpm(&self) -> bool {
        matches!(self.dialect, Dialect::PhpFpm { .. })
    }

    pub(super) fn said(self) -> Vec<(LogLevel, String)> {
        let Dialect::PhpFpm { mut said, .. } = self.dialect else {
            return Vec::new();
        };
        said.extend(self.list.iter().map(|diagnostic| {
            let level = match diagnostic.severity {
                Severity::Error => LogLevel::Error,
                Severity::Warning => LogLevel::Warning,
            };
            (level, diagnostic.said_of(None))
        }));
        said
    }

    fn say(&mut self, level: LogLevel, text: String, fails: bool) {
        if let Dialect::PhpFpm { said, has_failed, .. } = &mut self.dialect {
            if !*has_failed {
                said.push((level, text));
                *has_failed = fails;
            }
        }
    }

    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        match self.is_full() {
            true => self.has_more = true,
            false => self.list.push(diagnostic),
        }
    }

    fn is_full(&self) -> bool {
        self.most.is_some_and(|most| self.list.len() >= most)
    }

    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    pub(super) fn concerns(&mut self, pool: &str) {
        if let Some(last) = self.list.len().checked_sub(1) {
            self.others.push((last, pool.to_owned()));
        }
    }

    /// The errors in file order, each with other affected pools.
    pub(super) fn errors(&self) -> Vec<(&Diagnostic, Vec<&str>)> {
        let numbered = self.list.iter().enumerate();
        let errors = numbered.filter(|(_, diagnostic)| diagnostic.severity == Severity::Error);
        let mut errors: Vec<_> = errors
            .map(|(number, diagnostic)| {
                let others = self.others.iter().filter(|(of, _)| *of == number);
                (diagnostic, others.map(|(_, name)| name.as_str()).collect())
            })
            .collect();
        errors.sort_by_key(|(diagnostic, _)| diagnostic.location.rank());
        errors
    }

    pub(super) fn has_errors(&self) -> bool {
        let mut list = self.list.iter();
        let has_failed = matches!(self.dialect, Dialect::PhpFpm { has_failed: true, .. });
        has_failed || list.any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    pub(super) fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|diagnostic| diagnostic.location.rank());
        self.list
    }
}

#[derive(Debug)]
pub(super) struct Report<'f> {
    diagnostics: &'f mut Diagnostics,
    pool: Option<String>,
    prefix: String,
}

impl<'f> Report<'f> {
    fn new(diagnostics: &'f mut Diagnostics, pool: Option<&str>, prefix: &str) -> Report<'f> {
        Report {
            diagnostics,
            pool: pool.map(str::to_owned),
            prefix: prefix.to_owned(),
        }
    }

    pub(super) fn global(diagnostics: &'f mut Diagnostics) -> Report<'f> {
        Report::new(diagnostics, None, "global.")
    }

    pub(super) fn plain(diagnostics: &'f mut Diagnostics) -> Report<'f> {
        Report::new(diagnostics, None, "")
    }

    /// Reports a table's keys with their full path.
    pub(super) fn table(diagnostics: &'f mut Diagnostics, table: &str) -> Report<'f> {
        Report::new(diagnostics, None, &format!("{table}."))
    }

    pub(super) fn pool(diagnostics: &'f mut Diagnostics, name: &str) -> Report<'f> {
        Report::new(diagnostics, Some(name), "")
    }

    /// Whether php-fpm's rules apply instead of forkyard's.
    pub(super) fn is_php_fpm(&self) -> bool {
        self.diagnostics.is_php_fpm()
    }

    /// Whether further diagnostics are dropped, so that the caller can stop checking.
    pub(super) fn is_full(&self) -> bool {
        self.diagnostics.is_full()
    }

    pub(super) fn line_end(&self) -> &'static str {
        match self.diagnostics.dialect {
            Dialect::PhpFpm { line_end, .. } => line_end,
            Dialect::Toml => "",
        }
    }

    pub(super) fn say(&mut self, level: LogLevel, text: String) {
        self.diagnostics.say(level, text, false);
    }

    /// For php-fpm's files: adds an error that would make php-fpm exit.
    pub(super) fn fail(&mut self, text: String) {
        self.diagnostics.say(LogLevel::Error, text, true);
    }

    pub(super) fn name_pool(&self, advice: String) -> String {
        match &self.pool {
            Some(pool) => advice.replace("[pool.NAME", &format!("[pool.{pool}")),
            None => advice,
        }
    }

    pub(super) fn error(&mut self, location: &Location, key: &str, kind: Kind) {
        self.find(Severity::Error, location, key, kind);
    }

    pub(super) fn find(&mut self, severity: Severity, location: &Location, key: &str, kind: Kind) {
        // php-fpm's rules don't cover environment variables.
        if self.is_php_fpm() && !is_variable(location) {
            return;
        }
        let key = format!("{}{key}", self.prefix);
        let diagnostic = Diagnostic {
            severity,
            location: location.clone(),
            pool: self.pool.clone(),
            key: Some(key),
            kind,
        };
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn rule<T>(&mut self, at: &Written<T>, problem: impl Into<String>, remedy: impl Into<String>) {
        self.error(&at.location, at.key, Kind::rule(problem, remedy));
    }

    pub(super) fn warn<T>(&mut self, at: &Written<T>, problem: impl Into<String>, remedy: impl Into<String>) {
        let kind = Kind::rule(problem, remedy);
        self.find(Severity::Warning, &at.location, at.key, kind);
    }

    pub(super) fn rule_entry<T>(
        &mut self,
        entry: &KeyEntry<T>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.error(&entry.location, entry.table, Kind::rule(problem, remedy));
    }

    /// Adds an error about a forbidden key.
    pub(super) fn refuse<T>(&mut self, field: &Field<T>, problem: &str, remedy: &str) {
        if let Some(written) = field.written() {
            self.rule(written, problem, remedy);
        }
    }

    pub(super) fn useless<T>(&mut self, field: &Field<T>, problem: &str, remedy: &str) {
        if let Some(written) = field.written() {
            self.warn(written, problem, remedy);
        }
    }

    pub(super) fn missing(&mut self, location: &Location, key: &str, write: impl Into<String>) {
        self.error(location, key, Kind::Missing { write: write.into() });
    }

    /// Returns the written value. Adds an error if the field is absent.
    pub(super) fn require<'d, T>(
        &mut self,
        field: &'d Field<T>,
        location: &Location,
        key: &str,
        write: &str,
    ) -> Option<&'d Written<T>> {
        if field.is_absent() {
            self.missing(location, key, write);
        }
        field.written()
    }

    pub(super) fn range<N: TryFrom<i64>>(
        &mut self,
        field: &Field<Whole>,
        least: i64,
        most: i64,
    ) -> Option<N> {
        let written = field.written()?;
        let found = written.value.0;
        let is_kept = self.is_php_fpm() && !is_variable(&written.location);
        if (least..=most).contains(&found) || is_kept {
            return N::try_from(found).ok();
        }
        self.error(&written.location, written.key, Kind::Range { found, least, most });
        None
    }

    /// Warns that a key has no effect without root.
    pub(super) fn ignored_without_root<T>(&mut self, field: &Field<T>) {
        let Some(written) = field.written() else {
            return;
        };
        // For a pool, php-fpm's notice was already added when the pool's user was resolved.
        if self.pool.is_none() {
            let key = written.key;
            let text = format!("'{key}' directive is ignored when FPM is not running as root");
            self.say(LogLevel::Notice, text);
        }
        self.warn(
            written,
            "it is ignored",
            "only a master that runs as root can do this",
        );
    }
}

/// A report for rules that ask the machine.
pub(super) struct WorldReport<'f> {
    pub(super) world: &'f dyn World,
    report: Report<'f>,
}

impl<'f> Report<'f> {
    pub(super) fn with(self, world: &'f dyn World) -> WorldReport<'f> {
        WorldReport { world, report: self }
    }
}

impl<'f> Deref for WorldReport<'f> {
    type Target = Report<'f>;

    fn deref(&self) -> &Report<'f> {
        &self.report
    }
}

impl DerefMut for WorldReport<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.report
    }
}
