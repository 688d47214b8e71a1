//! Settings that PHP needs at its start, and a search for those that prevent it.
//!
//! php-fpm applies a pool's settings in each worker after PHP's start, where some have no effect, such as OPcache's
//! memory size or a preload script. Here PHP starts with them, and some values make it fail. The search works by trial,
//! since extensions may have unknown settings.

use super::application::Php;
use super::draft::{ApplicationDraft, PhpDraft, PoolText};
use super::error::Location;
use super::model::Pool;
use super::sharing::{PRELOAD, is_start_setting};
use forkyard_base::text::is_control;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

const MOST_TRIES: u32 = 5;
const MOST_OF_A_REASON: usize = 300;
const NOWHERE: &str = " in Unknown on line 0";
const MARKUP: [&str; 3] = ["<b>", "</b>", "<br />"];

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
    pub fn location(&self) -> Location {
        Location {
            file: self.file.as_path().into(),
            line: self.line,
            column: self.column,
            order: self.order,
        }
    }
}

pub(super) fn of(text: &PoolText, pool: &Pool) -> Vec<StartSetting> {
    let (ApplicationDraft::Php(draft), Some(php)) = (&text.application, pool.application.php()) else {
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub setting: StartSetting,
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

/// Finds the faulty settings: leaves out one after another until PHP starts.
#[derive(Debug, Clone)]
pub struct Trial {
    settings: Vec<StartSetting>,
    /// Indices in `settings`, with reasons.
    left_out: Vec<(usize, String)>,
    /// Settings whose removal didn't change the failure.
    innocent: Vec<usize>,
    on_trial: Option<usize>,
    /// The last failure, without words that change between starts.
    failure: String,
    tries: u32,
}

impl Trial {
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

    pub fn can_go_on(&self) -> bool {
        self.left_out.len() < self.settings.len()
    }

    /// Handles a failed start and chooses the settings to leave out next. Returns `false` if no setting is at fault.
    /// `output`: the process's output; `summary`: the cause, used if there is no output.
    pub fn failed(&mut self, output: &str, summary: &str) -> bool {
        if !self.can_go_on() {
            return false;
        }
        // Drop times, addresses and pids, which change between starts.
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
            // Several settings are at fault, or no retries remain.
            None => {
                let rest = (0..self.settings.len()).filter(|at| !self.is_left_out(*at));
                let rest: Vec<_> = rest.map(|at| (at, reason.clone())).collect();
                self.left_out.extend(rest);
            }
        }
        true
    }

    pub fn left_out(&self) -> impl Iterator<Item = LeftOut> + '_ {
        self.left_out.iter().map(|(at, reason)| LeftOut {
            setting: self.settings[*at].clone(),
            reason: reason.clone(),
        })
    }

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

    /// The most likely setting: one named in PHP's output, then one that runs code. Extensions come last, because
    /// php-fpm loads them too.
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

/// How well the output matches a setting's name, value or words of its name ("interned strings buffer").
fn named(setting: &StartSetting, output: &str) -> usize {
    let StartSetting { name, value, .. } = setting;
    let is_long = value.len() > 3;
    if output.contains(name.as_str()) || is_long && output.contains(value.as_str()) {
        return usize::MAX;
    }
    // OPcache writes "lock file" for opcache.lockfile_path.
    let letters: String = output.split_whitespace().collect();
    let words = name.split(['.', '_']).skip(1);
    words
        .filter(|word| word.len() > 3 && letters.contains(word))
        .map(str::len)
        .sum()
}

/// PHP's last error, its last line, or the cause.
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

/// Strips OPcache's time and pid: `Thu Nov 26 21:19:54 2026 (29758): `.
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

    /// Runs a search. `fails` gets the remaining names and returns a failed start's output. Returns the left-out
    /// settings and the number of failures.
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
        // The failure changes without the first: both are at fault.
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
