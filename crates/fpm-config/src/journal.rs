//! Messages from reading a configuration.

use forkyard_config::LogLevel;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    Log(LogLevel, String),
    /// A line that PHP writes to standard error, without time and level.
    Php(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    pub lines: Vec<Line>,
    /// The error log and the number of messages before it was opened. Later ones also go to the log.
    pub opened: Option<(PathBuf, usize)>,
    /// Set if php-fpm would already run in the background.
    pub is_in_background: bool,
    threshold: LogLevel,
}

/// A failure that is already in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed;

impl Journal {
    pub(super) fn new() -> Journal {
        Journal {
            lines: Vec::new(),
            opened: None,
            is_in_background: false,
            threshold: LogLevel::Notice,
        }
    }

    pub(super) fn set_threshold(&mut self, level: LogLevel) {
        self.threshold = level;
    }

    pub(super) fn open(&mut self, path: PathBuf) {
        self.opened = Some((path, self.lines.len()));
    }

    pub(super) fn say(&mut self, level: LogLevel, text: impl Into<String>) {
        if level >= self.threshold {
            self.lines.push(Line::Log(level, text.into()));
        }
    }

    pub(super) fn php(&mut self, text: String) {
        self.lines.push(Line::Php(format!("PHP:  {text}")));
    }

    pub(super) fn error(&mut self, text: impl Into<String>) -> Failed {
        self.say(LogLevel::Error, text);
        Failed
    }

    pub(super) fn alert(&mut self, text: impl Into<String>) -> Failed {
        self.say(LogLevel::Alert, text);
        Failed
    }

    pub(super) fn warn(&mut self, text: impl Into<String>) {
        self.say(LogLevel::Warning, text);
    }

    pub(super) fn notice(&mut self, text: impl Into<String>) {
        self.say(LogLevel::Notice, text);
    }
}
