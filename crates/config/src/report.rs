//! Collects what is found while a configuration is read and resolved.

use super::error::{Finding, Kind, Place, Severity};
use super::leaves::{Field, Written};
use super::units::Whole;

/// Collects what is found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
    /// Pools that the finding of this number concerns beside its own.
    others: Vec<(usize, String)>,
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        self.list.push(finding);
    }

    /// The last finding concerns another pool as well.
    pub(super) fn concerns(&mut self, pool: &str) {
        if let Some(last) = self.list.len().checked_sub(1) {
            self.others.push((last, pool.to_owned()));
        }
    }

    /// The errors in the order of the files and of the text, each with the pools that it concerns beside its own.
    pub(super) fn errors(&self) -> Vec<(&Finding, Vec<&str>)> {
        let numbered = self.list.iter().enumerate();
        let errors = numbered.filter(|(_, finding)| finding.severity == Severity::Error);
        let mut errors: Vec<_> = errors
            .map(|(number, finding)| {
                let others = self.others.iter().filter(|(of, _)| *of == number);
                (finding, others.map(|(_, name)| name.as_str()).collect())
            })
            .collect();
        errors.sort_by_key(|(finding, _)| finding.place.rank());
        errors
    }

    pub(super) fn has_errors(&self) -> bool {
        self.list
            .iter()
            .any(|finding| finding.severity == Severity::Error)
    }

    /// All of them, in the order of the files and of the text.
    pub(super) fn into_sorted(mut self) -> Vec<Finding> {
        self.list.sort_by_key(|finding| finding.place.rank());
        self.list
    }
}

/// Findings about one section.
#[derive(Debug)]
pub(super) struct Report<'f> {
    findings: &'f mut Findings,
    pool: Option<String>,
    /// What comes before a key.
    prefix: &'static str,
}

impl<'f> Report<'f> {
    /// About `[global]`.
    pub(super) fn global(findings: &'f mut Findings) -> Report<'f> {
        Report {
            findings,
            pool: None,
            prefix: "global.",
        }
    }

    /// About a file without sections.
    pub(super) fn plain(findings: &'f mut Findings) -> Report<'f> {
        Report {
            findings,
            pool: None,
            prefix: "",
        }
    }

    /// About a pool.
    pub(super) fn pool(findings: &'f mut Findings, name: &str) -> Report<'f> {
        Report {
            findings,
            pool: Some(name.to_owned()),
            prefix: "",
        }
    }

    /// Advice about pools in general, said of this one.
    pub(super) fn name_pool(&self, advice: String) -> String {
        match &self.pool {
            Some(pool) => advice.replace("[pool.NAME", &format!("[pool.{pool}")),
            None => advice,
        }
    }

    pub(super) fn error(&mut self, place: &Place, key: &str, kind: Kind) {
        self.find(Severity::Error, place, key, kind);
    }

    pub(super) fn find(&mut self, severity: Severity, place: &Place, key: &str, kind: Kind) {
        let key = format!("{}{key}", self.prefix);
        let finding = Finding {
            severity,
            place: place.clone(),
            pool: self.pool.clone(),
            key: Some(key),
            kind,
        };
        self.findings.push(finding);
    }

    /// An error that needs words of its own.
    pub(super) fn rule<T>(&mut self, at: &Written<T>, problem: impl Into<String>, remedy: impl Into<String>) {
        let kind = Kind::Rule {
            problem: problem.into(),
            remedy: remedy.into(),
        };
        self.error(&at.place, at.key, kind);
    }

    /// Something that has no effect, or another one than was meant.
    pub(super) fn warn<T>(&mut self, at: &Written<T>, problem: impl Into<String>, remedy: impl Into<String>) {
        let kind = Kind::Rule {
            problem: problem.into(),
            remedy: remedy.into(),
        };
        self.find(Severity::Warning, &at.place, at.key, kind);
    }

    /// A key that has to be there and isn't.
    pub(super) fn missing(&mut self, place: &Place, key: &str, write: impl Into<String>) {
        self.error(place, key, Kind::Missing { write: write.into() });
    }

    /// The number, if it is within the range; an error otherwise.
    pub(super) fn range(&mut self, field: &Field<Whole>, least: i64, most: i64) -> Option<i64> {
        let written = field.written()?;
        let found = written.value.0;
        if (least..=most).contains(&found) {
            return Some(found);
        }
        self.error(&written.place, written.key, Kind::Range { found, least, most });
        None
    }

    /// Warns that a key has no effect because this process is not root.
    pub(super) fn ignored_without_root<T>(&mut self, field: &Field<T>) {
        if let Some(written) = field.written() {
            self.warn(
                written,
                "it is ignored",
                "only a master that runs as root can do this",
            );
        }
    }
}
