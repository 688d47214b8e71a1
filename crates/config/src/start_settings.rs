//! Settings of a pool that PHP needs at its start, and the search for those that keep it from starting.
//!
//! php-fpm sets a pool's settings in each worker, after PHP has started: a size of OPcache's memory or a script to preload has no
//! effect there. Here PHP starts with them, and some values make it fail. The search tries: an extension may have settings that
//! no table lists.

use super::application::{Application, Php};
use super::draft::{ApplicationDraft, PhpDraft, PoolText};
use super::error::Location;
use super::model::Pool;
use super::sharing::{PRELOAD, is_start_setting};
use forkyard_base::text::is_control;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Starts with fewer settings, after the first one with all.
const MOST_TRIES: u32 = 5;
/// Characters of a reason.
const MOST_OF_A_REASON: usize = 300;
/// PHP's words where there is no script.
const NOWHERE: &str = " in Unknown on line 0";
/// Its markup, if it shows errors.
const MARKUP: [&str; 3] = ["<b>", "</b>", "<br />"];

/// A setting that PHP needs at its start, with its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartSetting {
    /// `php_value`, `php_flag`, `php_admin_value` or `php_admin_flag`.
    pub table: String,
    pub name: String,
    pub value: String,
    pub file: PathBuf,
    pub line: usize,
    pub column: usize,
    order: usize,
}

impl StartSetting {
    /// Its place.
    pub fn location(&self) -> Location {
        Location {
            file: self.file.as_path().into(),
            line: self.line,
            column: self.column,
            order: self.order,
        }
    }
}

/// Returns the settings of a pool that PHP needs at its start, in the order of the text.
pub(super) fn of(text: &PoolText, pool: &Pool) -> Vec<StartSetting> {
    let (ApplicationDraft::Php(draft), Application::Php(php)) = (&text.application, &pool.application) else {
        return Vec::new();
    };
    let mut settings: Vec<StartSetting> = written(draft, php).collect();
    settings.sort_by_key(|setting| (setting.order, setting.line, setting.column));
    settings
}

fn written<'d>(draft: &'d PhpDraft, php: &'d Php) -> impl Iterator<Item = StartSetting> + use<'d> {
    let tables = [
        &draft.php_value,
        &draft.php_flag,
        &draft.php_admin_value,
        &draft.php_admin_flag,
    ];
    tables.into_iter().flatten().filter_map(|entry| {
        let name = entry.name.join(".");
        // A flag has several spellings.
        let is_flag = entry.table.ends_with("_flag");
        let value = match is_flag {
            true => all(php).find(|(known, _)| *known == name)?.1.clone(),
            false => entry.value.0.clone(),
        };
        is_start_setting(&name).then(|| StartSetting {
            table: entry.table.rsplit('.').next().unwrap_or_default().to_owned(),
            name,
            value,
            file: entry.location.file.to_path_buf(),
            line: entry.location.line,
            column: entry.location.column,
            order: entry.location.order,
        })
    })
}

fn all(php: &Php) -> impl Iterator<Item = &(String, String)> {
    php.php_value.iter().chain(&php.php_admin_value)
}

/// A setting that keeps PHP from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub setting: StartSetting,
    /// PHP's message, or how its process ended.
    pub reason: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StartSetting {
            table,
            name,
            value,
            file,
            line,
            ..
        } = &self.setting;
        write!(
            f,
            "{}:{line}: {table}[{name}] = {value} is left out, because PHP does not start with it: {}",
            file.display(),
            self.reason
        )
    }
}

/// Finds the settings at fault: leaves out one after the other until PHP starts.
#[derive(Debug, Clone)]
pub struct Trial {
    settings: Vec<StartSetting>,
    /// Indices in `settings`, with reasons.
    left_out: Vec<(usize, String)>,
    /// PHP failed in the same way without them.
    innocent: Vec<usize>,
    /// The setting that the current start is the first to leave out.
    on_trial: Option<usize>,
    /// The last failure, without words that differ from start to start.
    failure: String,
    tries: u32,
}

impl Trial {
    /// No start has failed yet.
    pub fn new(settings: Vec<StartSetting>) -> Trial {
        Trial {
            settings,
            left_out: Vec::new(),
            innocent: Vec::new(),
            on_trial: None,
            failure: String::new(),
            tries: 0,
        }
    }

    /// Whether another setting can be left out.
    pub fn can_go_on(&self) -> bool {
        self.left_out.len() < self.settings.len()
    }

    /// Takes in a failed start, and chooses the settings that the next start leaves out. Returns false if no setting is at
    /// fault. `output`: all output of the process; `summary`: the cause, for a process without output.
    pub fn failed(&mut self, output: &str, summary: &str) -> bool {
        if !self.can_go_on() {
            return false;
        }
        // Times, addresses and numbers of processes differ from start to start.
        let words = output.split_whitespace().chain(summary.split_whitespace());
        let failure: String = words
            .filter(|word| !word.contains(|c: char| c.is_ascii_digit()))
            .collect();
        if let Some(at) = self.on_trial.take() {
            if failure == self.failure {
                self.left_out.retain(|(index, _)| *index != at);
                self.innocent.push(at);
            } else {
                self.innocent.clear();
            }
        }
        self.failure = failure;
        self.tries += 1;
        let reason = reason(output, summary);
        match self.suspect(output).filter(|_| self.tries < MOST_TRIES) {
            Some(at) => {
                self.left_out.push((at, reason));
                self.on_trial = Some(at);
            }
            // Several settings are at fault, or the tries are used up.
            None => {
                let rest = (0..self.settings.len()).filter(|at| !self.is_left_out(*at));
                let rest: Vec<_> = rest.map(|at| (at, reason.clone())).collect();
                self.left_out.extend(rest);
            }
        }
        true
    }

    /// The settings that the next start leaves out.
    pub fn left_out(&self) -> impl Iterator<Item = LeftOut> + '_ {
        self.left_out.iter().map(|(at, reason)| LeftOut {
            setting: self.settings[*at].clone(),
            reason: reason.clone(),
        })
    }

    /// Removes the left-out settings from a pool's.
    pub fn apply(&self, php: &mut Php) {
        let stays = |(name, value): &(String, String)| {
            let mut gone = self.left_out.iter().map(|(at, _)| &self.settings[*at]);
            !gone.any(|setting| setting.name == *name && setting.value == *value)
        };
        php.php_value.retain(stays);
        php.php_admin_value.retain(stays);
    }

    fn is_left_out(&self, at: usize) -> bool {
        self.left_out.iter().any(|(index, _)| *index == at)
    }

    /// The likeliest setting: one that PHP's output names, then one that runs code. Extensions come last, because php-fpm loads
    /// them.
    fn suspect(&self, output: &str) -> Option<usize> {
        let rest =
            (0..self.settings.len()).filter(|at| !self.is_left_out(*at) && !self.innocent.contains(at));
        rest.max_by_key(|at| {
            let setting = &self.settings[*at];
            let is_extension = setting.name.ends_with("extension");
            (named(setting, output), setting.name == PRELOAD, !is_extension)
        })
    }
}

/// How well the output matches a setting: its name, its value, or letters of words of its name ("interned strings buffer").
fn named(setting: &StartSetting, output: &str) -> usize {
    let StartSetting { name, value, .. } = setting;
    let is_long = value.len() > 3;
    if output.contains(name.as_str()) || is_long && output.contains(value.as_str()) {
        return usize::MAX;
    }
    // OPcache writes "lock file" of opcache.lockfile_path.
    let letters: String = output.split_whitespace().collect();
    let words = name.split(['.', '_']).skip(1);
    words
        .filter(|word| word.len() > 3 && letters.contains(word))
        .map(str::len)
        .sum()
}

/// The last error that PHP wrote, its last line, or the cause.
fn reason(output: &str, summary: &str) -> String {
    let mut lines = output.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines
        .clone()
        .rfind(|line| line.to_ascii_lowercase().contains("error"));
    let line = error.or(lines.next_back()).map(without_time);
    let mut text = line.unwrap_or(summary).to_owned();
    for markup in MARKUP {
        text = text.replace(markup, "");
    }
    let text = text.trim_end_matches(NOWHERE).trim_end_matches('.');
    let printable = text.chars().filter(|c| !is_control(*c));
    printable.take(MOST_OF_A_REASON).collect()
}

/// A line without the time and process that OPcache begins it with: `Thu Nov 26 21:19:54 2026 (29758): `.
fn without_time(line: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match line.split_once("): ") {
        Some((head, rest)) if head.rsplit_once('(').is_some_and(|(_, number)| is_number(number)) => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str, value: &str) -> StartSetting {
        StartSetting {
            table: "php_admin_value".to_owned(),
            name: name.to_owned(),
            value: value.to_owned(),
            file: PathBuf::from("/etc/pool.conf"),
            line: 7,
            column: 1,
            order: 0,
        }
    }

    /// Runs a search. `fails` gets the remaining names, and returns the output of a failed start. Returns the left-out settings
    /// and the number of failed starts.
    fn run(
        settings: &[(&str, &str)],
        fails: impl Fn(&[&str]) -> Option<String>,
    ) -> Option<(Vec<LeftOut>, u32)> {
        let mut trial = Trial::new(
            settings
                .iter()
                .map(|(name, value)| setting(name, value))
                .collect(),
        );
        for failed in 0.. {
            let gone: Vec<LeftOut> = trial.left_out().collect();
            let names = settings.iter().map(|(name, _)| *name);
            let names: Vec<&str> = names
                .filter(|name| gone.iter().all(|it| it.setting.name != *name))
                .collect();
            match fails(&names) {
                None => return Some((gone, failed)),
                Some(output) if !trial.failed(&output, "it exited with code 254") => return None,
                Some(_) => {}
            }
        }
        None
    }

    fn names(left_out: &[LeftOut]) -> Vec<&str> {
        left_out.iter().map(|it| it.setting.name.as_str()).collect()
    }

    #[test]
    fn the_only_setting_is_at_fault_if_php_starts_without_it() {
        let fails = |names: &[&str]| {
            names
                .contains(&"a")
                .then(|| "PHP Fatal error:  no room in Unknown on line 0\n".to_owned())
        };
        let (left_out, failed) = run(&[("a", "1")], fails).expect("it starts");
        assert_eq!((names(&left_out), failed), (vec!["a"], 1));
        assert_eq!(
            left_out[0].to_string(),
            "/etc/pool.conf:7: php_admin_value[a] = 1 is left out, because PHP does not start with it: PHP Fatal error:  no room"
        );
        assert_eq!(run(&[("a", "1")], |_| Some(String::new())), None);
        assert_eq!(run(&[], |_| Some(String::new())), None);
    }

    #[test]
    fn what_php_names_is_tried_first() {
        let settings = [
            ("x.a", "/missing/a"),
            ("x.b", "/missing/b"),
            ("x.c", "1"),
            ("x.d", "1"),
            ("x.e", "1"),
        ];
        let fails = |names: &[&str]| {
            let (_, value) = settings[..2].iter().find(|(name, _)| names.contains(name))?;
            Some(format!("Thu Nov 26 21:19:54 2026 (29758): can't open {value}\n"))
        };
        let (left_out, failed) = run(&settings, fails).expect("it starts");
        assert_eq!((names(&left_out), failed), (vec!["x.a", "x.b"], 2));
        assert_eq!(left_out[0].reason, "can't open /missing/a");
    }

    #[test]
    fn what_makes_no_difference_stays() {
        let settings = [("a", "1"), ("b", "1"), ("c", "1")];
        for (number, at_fault) in ["a", "b", "c"].into_iter().enumerate() {
            let fails = |names: &[&str]| {
                names
                    .contains(&at_fault)
                    .then(|| format!("killed, process {number}"))
            };
            let (left_out, _) = run(&settings, fails).expect("it starts");
            assert_eq!(names(&left_out), [at_fault]);
        }
        // It fails in another way without the first: both are at fault.
        let fails = |names: &[&str]| {
            ["c", "a"]
                .into_iter()
                .find(|name| names.contains(name))
                .map(|it| format!("word {it}x"))
        };
        let (left_out, _) = run(&settings, fails).expect("it starts");
        assert_eq!(names(&left_out), ["c", "a"]);
    }

    #[test]
    fn a_reason_is_phps_last_error() {
        let cases = [
            (
                "PHP Fatal error:  Uncaught Exception: x in /p.php:1\n  thrown in /p.php on line 1\n",
                "PHP Fatal error:  Uncaught Exception: x in /p.php:1",
            ),
            (
                "<br />\n<b>Fatal error</b>:  apc_mmap failed in <b>Unknown</b> on line <b>0</b><br />\n",
                "Fatal error:  apc_mmap failed",
            ),
            ("words\n\u{1b}more (x): words.\n\n", "more (x): words"),
            ("\n", "it ended"),
        ];
        for (output, expected) in cases {
            assert_eq!(reason(output, "it ended."), expected);
        }
    }

    #[test]
    fn the_fifth_try_is_without_all() {
        let settings: Vec<(&str, &str)> = ["a", "b", "c", "d", "e", "f", "g", "h"]
            .map(|name| (name, "1"))
            .to_vec();
        let fails = |names: &[&str]| (!names.is_empty()).then(String::new);
        let (left_out, failed) = run(&settings, fails).expect("it starts");
        assert_eq!((left_out.len(), failed), (8, MOST_TRIES));
        assert_eq!(left_out[0].reason, "it exited with code 254");
    }

    #[test]
    fn code_is_suspected_before_sizes_and_extensions_last() {
        let settings = [
            ("extension", "x.so"),
            ("opcache.preload", "/p.php"),
            ("opcache.memory_consumption", "64"),
        ];
        let mut trial = Trial::new(settings.map(|(name, value)| setting(name, value)).to_vec());
        let mut order = Vec::new();
        while trial.failed("", "killed by signal 11") && order.len() < 3 {
            order.extend(trial.left_out().last().map(|it| it.setting.name));
        }
        assert_eq!(
            order,
            ["opcache.preload", "opcache.memory_consumption", "extension"]
        );
    }
}
