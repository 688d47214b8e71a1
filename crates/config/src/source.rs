//! One configuration file's text: parsed, and able to say where in it something is.

use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Diagnostic, Kind, Location};
use super::known;
use super::report::Diagnostics;

/// More syntax errors than this in one file are no help.
const MAX_SYNTAX_ERRORS: usize = 20;
/// Errors of the parser that are looked at. Each costs as much as there are lines before it.
const MAX_PARSER_ERRORS: usize = 1000;
/// With so many comments in php-fpm's way a file is one of php-fpm's.
const COMMENTS_OF_PHP_FPM: usize = 2;

/// A file's name and text.
#[derive(Debug)]
pub(super) struct Source<'t> {
    file: Arc<Path>,
    order: usize,
    text: &'t str,
    line_starts: Vec<usize>,
}

impl<'t> Source<'t> {
    pub(super) fn new(file: &Path, order: usize, text: &'t str) -> Source<'t> {
        let mut line_starts = vec![0];
        line_starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        Source {
            file: file.into(),
            order,
            text,
            line_starts,
        }
    }

    /// The place of a byte of the text.
    pub(super) fn location(&self, offset: usize) -> Location {
        let offset = offset.min(self.text.len());
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let before = &self.text.as_bytes()[self.line_starts[line - 1]..offset];
        let column = before.iter().filter(|&&byte| byte & 0xC0 != 0x80).count() + 1;
        Location {
            file: self.file.clone(),
            line,
            column,
            order: self.order,
        }
    }

    /// The file as a whole.
    pub(super) fn whole(&self) -> Location {
        Location {
            file: self.file.clone(),
            line: 0,
            column: 0,
            order: self.order,
        }
    }

    /// The text as a table; `None` after a syntax error, which is then among the diagnostics.
    pub(super) fn parse(&self, diagnostics: &mut Diagnostics) -> Option<DeTable<'t>> {
        let (table, mut errors) = DeTable::parse_recoverable(self.text);
        if errors.is_empty() {
            return Some(Spanned::into_inner(table));
        }
        let start = |error: &toml::de::Error| error.span().unwrap_or_default().start;
        errors.sort_by_key(start);
        errors.truncate(MAX_PARSER_ERRORS);
        // One mistake often makes the parser stumble several times in one line.
        errors.dedup_by_key(|error| self.location(start(error)).line);
        let comments = errors.iter().filter(|error| {
            self.line(self.location(start(error)).line)
                .trim_start()
                .starts_with(';')
        });
        let wrong: Vec<&str> = errors
            .iter()
            .map(|error| self.line(self.location(start(error)).line))
            .collect();
        if comments.count() >= COMMENTS_OF_PHP_FPM || self.is_php_fpm(&wrong) {
            let problem = "this is a configuration of php-fpm's".to_owned();
            let file = self.file.display();
            let advice = Some(format!(
                "forkyard import {file} converts it to TOML, and forkyard-fpm -y {file} runs it unchanged"
            ));
            let location = self.location(start(&errors[0]));
            diagnostics.push(Diagnostic::error(location, Kind::Syntax { problem, advice }));
            return None;
        }
        let mut told = 0;
        // A table that is there twice, so that all its keys may be.
        let mut again: Option<&str> = None;
        for error in &errors {
            let location = self.location(start(error));
            if error.message().starts_with("duplicate key") {
                let table = self.table_of(location.line);
                if again.is_some_and(|again| is_within(table, again)) {
                    continue;
                }
                again = header(self.line(location.line)).or(again);
            }
            told += 1;
            if told > MAX_SYNTAX_ERRORS {
                break;
            }
            if let Some(kind) = self.duplicate(location.line, error.message()) {
                diagnostics.push(Diagnostic::error(location, kind));
                continue;
            }
            let advice = known::advice_for_line(self.line(location.line), error.message());
            // The parser's own guess is worse where there is a better one.
            let end = if advice.is_some() {
                error.message().find(", expected ")
            } else {
                None
            };
            let problem = error.message()[..end.unwrap_or(error.message().len())].to_owned();
            let kind = Kind::Syntax { problem, advice };
            diagnostics.push(Diagnostic::error(location, kind));
        }
        None
    }

    /// Whether lines that are no TOML are php-fpm's: one below the name of a pool as php-fpm writes it, or an `include` of one path.
    fn is_php_fpm(&self, wrong: &[&str]) -> bool {
        let mut headers = self.text.lines().filter_map(header);
        if headers.clone().any(known::is_table) {
            return false;
        }
        let has_pool = headers.any(|name| name != "global");
        wrong.iter().any(|line| match line.split_once('=') {
            Some((key, _)) if key.trim() == "include" => true,
            Some((key, _)) => has_pool && known::is_directive(key.trim()),
            None => false,
        })
    }

    /// What is to be said of a key or a table that is there twice.
    fn duplicate(&self, line: usize, message: &str) -> Option<Kind> {
        if !message.starts_with("duplicate key") {
            return None;
        }
        let text = self.line(line);
        let (problem, advice) = if let Some(table) = header(text) {
            let first = (1..line).find(|number| header(self.line(*number)) == Some(table))?;
            let advice = if table.starts_with("pool.") && table.matches('.').count() == 1 {
                "give one of the two pools another name"
            } else {
                "write the keys of both in one"
            };
            (format!("[{table}] is already there in line {first}"), advice)
        } else {
            let key = |line: &'t str| line.split_once('=').map(|(key, _)| key.trim());
            let own = key(text)?;
            let first = (1..line)
                .rev()
                .take_while(|number| header(self.line(*number)).is_none())
                .find(|number| key(self.line(*number)) == Some(own))?;
            (
                format!("{own} is already there in line {first}"),
                "leave one of the two out",
            )
        };
        Some(Kind::Syntax {
            problem,
            advice: Some(advice.to_owned()),
        })
    }

    /// The table that a line belongs to; empty: none.
    fn table_of(&self, line: usize) -> &'t str {
        let mut headers = (1..=line).rev().filter_map(|number| header(self.line(number)));
        headers.next().unwrap_or_default()
    }

    /// The names of the pools, as far as they can be made out of a text that has syntax errors.
    pub(super) fn pool_names(&self) -> Vec<String> {
        let (table, _) = DeTable::parse_recoverable(self.text);
        let pools = table.get_ref().get("pool").map(Spanned::get_ref);
        let pools = pools.and_then(DeValue::as_table).into_iter().flatten();
        let tables = pools.filter(|(_, value)| value.get_ref().is_table());
        tables
            .map(|(name, _)| name.get_ref().clone().into_owned())
            .collect()
    }

    fn line(&self, number: usize) -> &'t str {
        let start = self.line_starts[number - 1];
        let end = self.line_starts.get(number).copied().unwrap_or(self.text.len());
        &self.text[start..end]
    }
}

/// What stands between the brackets of a table's head; `None`: it is another line.
fn header(line: &str) -> Option<&str> {
    let inner = line.trim().strip_prefix('[')?.split(']').next()?;
    Some(inner.trim())
}

/// Whether a table is this one or below it.
fn is_within(table: &str, other: &str) -> bool {
    table
        .strip_prefix(other)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
