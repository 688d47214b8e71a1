//! What is wrong with a configuration, where, and what would be right.

use forkyard_protocol::control::Complaint;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Where in which file, counted from one. Line 0: the file as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file, as it was named.
    pub file: Arc<Path>,
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
    /// The how-manieth file it is in the order of reading.
    pub(super) order: usize,
}

impl Location {
    /// Its rank in the order of the files and of the text.
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

/// How bad a diagnostic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The configuration can't be used.
    Error,
    /// Something has no effect, or not the one that was meant.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file could not be read.
    Unreadable { reason: String },
    /// The text is not TOML.
    Syntax {
        /// What the parser says.
        problem: String,
        /// What was probably meant.
        advice: Option<String>,
    },
    /// There is no such key.
    UnknownKey {
        /// The key that was probably meant, or where it belongs.
        advice: Option<String>,
    },
    /// A value of the wrong type or form.
    Value {
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A number outside its range.
    Range { found: i64, least: i64, most: i64 },
    /// A key that has to be there.
    Missing {
        /// What to write.
        write: String,
    },
    /// A rule that needs more than the value itself.
    Rule {
        /// What is wrong.
        problem: String,
        /// What would be right.
        remedy: String,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Unreadable { reason } => write!(f, "can't be read: {reason}"),
            Kind::Syntax {
                problem,
                advice: None,
            } => write!(f, "not valid TOML: {problem}"),
            Kind::Syntax {
                problem,
                advice: Some(advice),
            } => write!(f, "not valid TOML: {problem}; {advice}"),
            Kind::UnknownKey { advice: None } => write!(f, "unknown key"),
            Kind::UnknownKey { advice: Some(advice) } => write!(f, "unknown key; {advice}"),
            Kind::Value { found, expected } => write!(f, "{found} is not {expected}"),
            Kind::Range { found, least, most } => {
                write!(
                    f,
                    "{found} is out of range; give a whole number from {least} to {most}"
                )
            }
            Kind::Missing { write } => write!(f, "missing; write {write}"),
            Kind::Rule { problem, remedy } => write!(f, "{problem}; {remedy}"),
        }
    }
}

/// One thing that was found, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    pub location: Location,
    /// The pool it belongs to.
    pub pool: Option<String>,
    /// The key it is about, in full.
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
    /// An error in a file, of no pool and no key.
    pub(super) fn error(location: Location, kind: Kind) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            location,
            pool: None,
            key: None,
            kind,
        }
    }

    /// What a log line says of it, which has a level of its own, and, if it speaks of a pool, that pool's name.
    pub fn said_of(&self, pool: Option<&str>) -> String {
        let mut text = format!("{}: ", self.location);
        if let Some(own) = self.pool.as_deref().filter(|own| Some(*own) != pool) {
            text += &format!("[pool {own}] ");
        }
        // To memory.
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

/// Why a configuration can't be used: at least one error, and the warnings that came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Errors {
    /// Errors and warnings in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Errors {
    /// The errors alone.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.severity == Severity::Error)
    }
}

impl Errors {
    /// The errors alone, as they are told over the control socket.
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
