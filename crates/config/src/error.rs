//! Configuration errors with place and fix.

use forkyard_protocol::control::Complaint;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A place in a file, from 1. Line 0 means the whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    pub file: Arc<Path>,
    pub line: usize,
    /// In characters.
    pub column: usize,
    /// The file's position in reading order.
    pub order: usize,
}

impl Location {
    /// A whole file, or what stands for one.
    pub(super) fn of_file(file: impl Into<Arc<Path>>) -> Location {
        Location {
            file: file.into(),
            line: 0,
            column: 0,
            order: 0,
        }
    }

    pub(super) fn rank(&self) -> (usize, usize, usize) {
        (self.order, self.line, self.column)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Error,
    /// A setting has no or an unexpected effect.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Kind {
    #[error("can't be read: {reason}")]
    Unreadable { reason: String },
    #[error("not valid TOML: {problem}{}", after_semicolon(advice.as_deref()))]
    Syntax { problem: String, advice: Option<String> },
    #[error("unknown key{}", after_semicolon(advice.as_deref()))]
    UnknownKey {
        /// A similar key, or the right section.
        advice: Option<String>,
    },
    #[error("{found} is not {expected}")]
    Value { found: String, expected: String },
    #[error("{found} is out of range; give a whole number from {least} to {most}")]
    Range { found: i64, least: i64, most: i64 },
    #[error("missing; write {write}")]
    Missing { write: String },
    #[error("{problem}; {remedy}")]
    Rule { problem: String, remedy: String },
}

impl Kind {
    pub(super) fn rule(problem: impl Into<String>, remedy: impl Into<String>) -> Kind {
        Kind::Rule {
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }
}

fn after_semicolon(advice: Option<&str>) -> String {
    advice.map(|advice| format!("; {advice}")).unwrap_or_default()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub location: Location,
    pub pool: Option<String>,
    pub key: Option<String>,
    pub kind: Kind,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.location, self.severity)?;
        if let Some(pool) = &self.pool {
            write!(f, "[pool {pool}] ")?;
        }
        self.write_matter(f)
    }
}

impl Diagnostic {
    pub(super) fn error(location: Location, kind: Kind) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            location,
            pool: None,
            key: None,
            kind,
        }
    }

    /// The message without severity and, if it is the given pool's, without pool name.
    pub fn said_of(&self, pool: Option<&str>) -> String {
        let mut text = format!("{}: ", self.location);
        if let Some(own) = self.pool.as_deref().filter(|own| Some(*own) != pool) {
            text += &format!("[pool {own}] ");
        }
        let _ = self.write_matter(&mut text);
        text
    }

    fn write_matter(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        if let Some(key) = &self.key {
            write!(to, "{key}: ")?;
        }
        write!(to, "{}", self.kind)
    }
}

impl From<&Diagnostic> for Complaint {
    fn from(diagnostic: &Diagnostic) -> Complaint {
        let is_placed = diagnostic.location.line > 0;
        Complaint {
            file: Some(diagnostic.location.file.display().to_string()),
            line: is_placed.then_some(diagnostic.location.line),
            column: is_placed.then_some(diagnostic.location.column),
            text: diagnostic.to_string(),
        }
    }
}

/// At least one error, with all warnings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors {
    pub diagnostics: Vec<Diagnostic>,
}

impl Errors {
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

impl Errors {
    /// The errors in the control protocol's form.
    pub fn complaints(&self) -> Vec<Complaint> {
        self.errors().map(Complaint::from).collect()
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for diagnostic in self.errors() {
            write!(f, "{separator}{diagnostic}")?;
            separator = "\n";
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}
