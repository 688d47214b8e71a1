//! One configuration file's text, with places.

use std::path::Path;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{Diagnostic, Kind, Location};
use super::known;
use super::report::Diagnostics;

const MAX_SYNTAX_ERRORS: usize = 20;
/// The maximum of parser errors examined. Locating each takes time proportional to its line number.
const MAX_PARSER_ERRORS: usize = 1000;
/// This many comments in php-fpm's style mark a php-fpm file.
const COMMENTS_OF_PHP_FPM: usize = 2;

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

    pub(super) fn whole(&self) -> Location {
        Location {
            order: self.order,
            ..Location::of_file(self.file.clone())
        }
    }

    /// Parses TOML. Returns `None` after reporting a syntax error.
    pub(super) fn parse(&self, diagnostics: &mut Diagnostics) -> Option<DeTable<'t>> {
        let (table, mut errors) = DeTable::parse_recoverable(self.text);
        if errors.is_empty() {
            return Some(Spanned::into_inner(table));
        }
        let start = |error: &toml::de::Error| error.span().unwrap_or_default().start;
        errors.sort_by_key(start);
        errors.truncate(MAX_PARSER_ERRORS);
        // One mistake often causes several parser errors in a line.
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
            // Prefer our advice to the parser's guess.
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

    /// Whether invalid lines look like php-fpm's: below a pool header in its style, or an `include` of one path.
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

    fn table_of(&self, line: usize) -> &'t str {
        let mut headers = (1..=line).rev().filter_map(|number| header(self.line(number)));
        headers.next().unwrap_or_default()
    }

    /// The pools' names that can be found despite syntax errors.
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

fn header(line: &str) -> Option<&str> {
    let inner = line.trim().strip_prefix('[')?.split(']').next()?;
    Some(inner.trim())
}

fn is_within(table: &str, other: &str) -> bool {
    table
        .strip_prefix(other)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
