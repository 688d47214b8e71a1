//! Settings of a pool that PHP has to know before it starts, and which of them keep it from starting.
//!
//! php-fpm sets a pool's settings in each worker, when PHP has started: a size of OPcache's memory or a script to preload has no
//! effect there, whatever it is. Here PHP starts with them, and does not start with some values. Which setting is at fault is
//! found by trying: an extension may have settings that nothing here knows.

use super::application::{Application, Php};
use super::draft::{ApplicationDraft, PhpDraft, PoolText};
use super::error::Location;
use super::model::Pool;
use super::sharing::{PRELOAD, is_start_setting};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Starts without some of the settings, after one with all of them.
const MOST_TRIES: u32 = 5;
/// Characters of a reason.
const MOST_OF_A_REASON: usize = 300;
/// PHP's words where there is no script.
const NOWHERE: &str = " in Unknown on line 0";

/// A setting that PHP has to know before it starts, and where it is written.
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
    /// Where it is written.
    pub fn location(&self) -> Location {
        Location {
            file: self.file.as_path().into(),
            line: self.line,
            column: self.column,
            order: self.order,
        }
    }
}

/// The settings of a pool that PHP has to know before it starts, in the order of the text.
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

/// A setting without which PHP starts, and does not start with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub setting: StartSetting,
    /// What PHP said, or how it ended.
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

/// Finds the settings at fault: one after the other is left out, until PHP starts.
#[derive(Debug, Clone)]
pub struct Trial {
    settings: Vec<StartSetting>,
    /// Their places in `settings`, and why.
    left_out: Vec<(usize, String)>,
    /// PHP failed in the same way without them.
    innocent: Vec<usize>,
    /// The setting that the start under way does without, and no start before.
    on_trial: Option<usize>,
    /// How the last start failed.
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

    /// Whether there is something left to leave out.
    pub fn can_go_on(&self) -> bool {
        self.left_out.len() < self.settings.len()
    }

    /// A start has failed: decides what the next one leaves out. `false`: none of the settings is at fault. `output`: what the
    /// process wrote; `summary`: why it failed, where it wrote nothing.
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
            // Several together are at fault, or one that was not found in time.
            None => {
                let rest = (0..self.settings.len()).filter(|at| !self.is_left_out(*at));
                let rest: Vec<_> = rest.map(|at| (at, reason.clone())).collect();
                self.left_out.extend(rest);
            }
        }
        true
    }

    /// The settings that the next start does without, or the last one did.
    pub fn left_out(&self) -> impl Iterator<Item = LeftOut> + '_ {
        self.left_out.iter().map(|(at, reason)| LeftOut {
            setting: self.settings[*at].clone(),
            reason: reason.clone(),
        })
    }

    /// Whether the next start has all settings.
    pub fn is_complete(&self) -> bool {
        self.left_out.is_empty()
    }

    /// Takes out of a pool's settings what is left out.
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

    /// The setting that is most likely at fault: the one that PHP's words are about, then one that runs code. php-fpm honours
    /// extensions, so they come last.
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

/// How much of a setting is in what PHP says: its name, its value, or the letters of words of its name ("interned strings buffer").
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

/// PHP's last line, or how its process ended.
fn reason(output: &str, summary: &str) -> String {
    let said = output.lines().map(str::trim).rfind(|line| !line.is_empty());
    let said = said.map(|line| {
        // OPcache's own lines have the time, and the process in brackets.
        let own = line.split_once("): ").filter(|(head, _)| {
            let number = head.rsplit_once('(').map(|(_, number)| number);
            number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        });
        own.map_or(line, |(_, words)| words).trim_end_matches(NOWHERE)
    });
    let text = said.unwrap_or(summary).trim_end_matches('.');
    text.chars()
        .filter(|c| !c.is_control())
        .take(MOST_OF_A_REASON)
        .collect()
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

    /// Lets starts fail until one succeeds; `fails` gets the names that are not left out. Says what is left out, and how many starts failed.
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
