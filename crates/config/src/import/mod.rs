//! A php-fpm configuration as one of forkyard's: the TOML, and what it could not take over.
//!
//! `convert` knows what each directive becomes, `write` makes the text, with the comments that stood beside the
//! directives. Names come from the table of [`settings`](super::settings) alone.

mod convert;
mod machine;
mod write;

use super::application::{Application, Preloading};
use super::fpm::{self, Journal, Machine, Options, Sight, Survey, is_ours};
use super::model::{Address, Config, Pool};
use convert::Outcome;
use machine::Elsewhere;
use std::collections::HashMap;
use std::fmt;
use write::Document;

/// Something that is not in the TOML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The file and the line, if it was in a file.
    pub place: Option<(String, usize)>,
    /// The pool; `None`: the global section.
    pub pool: Option<String>,
    /// The directive, or the option.
    pub name: String,
    /// Why, and what to do.
    pub reason: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((path, line)) = &self.place {
            write!(f, "{path}:{line}: ")?;
        }
        if let Some(pool) = &self.pool {
            write!(f, "[pool {pool}] ")?;
        }
        write!(f, "{} is not taken over: {}", self.name, self.reason)
    }
}

/// What came of an import.
#[derive(Debug, Clone)]
pub struct Imported {
    /// The TOML; `None`: php-fpm would not take the configuration either, as the journal says.
    pub text: Option<String>,
    /// What php-fpm's configuration means, for a daemon that runs as root.
    pub config: Option<Config>,
    /// What is not in it.
    pub lost: Vec<Lost>,
    /// What php-fpm says of its configuration.
    pub journal: Journal,
}

/// Turns a php-fpm configuration into TOML. The pools may have any users, whatever user runs this.
pub fn import(options: &Options, machine: &dyn Machine) -> Imported {
    let (survey, journal) = fpm::survey(options, &Elsewhere(machine));
    let Some(survey) = survey else {
        return Imported {
            text: None,
            config: None,
            lost: Vec::new(),
            journal,
        };
    };
    let mut import = Import {
        options,
        survey: &survey,
        sights: by_pool(&survey.sights),
        document: Document::new(&options.path()),
        lost: Vec::new(),
    };
    import.run();
    let Import { document, lost, .. } = import;
    Imported {
        text: Some(document.into_text()),
        config: Some(survey.config),
        lost,
        journal,
    }
}

/// Where each directive of each pool was written, in order. There may be thousands of pools.
type Sights<'s> = HashMap<Option<&'s str>, HashMap<&'s str, Vec<&'s Sight>>>;

fn by_pool(sights: &[Sight]) -> Sights<'_> {
    let mut found = Sights::new();
    for sight in sights {
        let pool = found.entry(sight.pool.as_deref()).or_default();
        pool.entry(list_of(&sight.name)).or_default().push(sight);
    }
    found
}

struct Import<'i> {
    options: &'i Options,
    survey: &'i Survey,
    sights: Sights<'i>,
    document: Document,
    lost: Vec<Lost>,
}

impl Import<'_> {
    fn run(&mut self) {
        let survey = self.survey;
        self.document.open(&["global"], self.comments(None, "", None));
        if self.options.allow_root {
            self.document.put(&["global"], "allow_root", true, Vec::new());
        }
        for (directive, value) in &survey.global {
            let is_written = self.sight(None, directive.name, None).is_some();
            let outcome = convert::global(directive, value, is_written);
            self.settle(None, directive.name, outcome);
        }
        self.options_for_php();
        for (at, (name, values)) in survey.pools.iter().enumerate() {
            let Some(pool) = survey.config.pools.get(at) else {
                continue;
            };
            let table = ["pool", name.as_str()];
            self.document.open(&table, self.comments(Some(name), "", None));
            self.application(name, pool);
            for (directive, value) in values {
                if self.sight(Some(name), directive.name, None).is_some() {
                    let has_more = self.has_more_of_listen(name);
                    let outcome = convert::pool(directive, value, pool, has_more);
                    self.settle(Some(name), directive.name, outcome);
                }
            }
        }
    }

    /// Whether more is written of the address than where it is, so that it becomes a table.
    fn has_more_of_listen(&self, pool: &str) -> bool {
        let written = self.sights.get(&Some(pool));
        written.is_some_and(|written| written.keys().any(|name| name.starts_with("listen.")))
    }

    /// What every pool needs and php-fpm has no directive for.
    fn application(&mut self, name: &str, pool: &Pool) {
        // Users of php-fpm rely on a fresh OPcache after a reload.
        self.document.put(&["pool", name], "reload", "always", Vec::new());
        let table = ["pool", name, "application"];
        self.document.put(&table, "runtime", "php", Vec::new());
        self.document
            .put(&table, "version", self.options.version(), Vec::new());
        if let Some(path) = &self.options.php_ini {
            self.document
                .put(&table, "php_ini", &*path.to_string_lossy(), Vec::new());
        }
        if let Application::Php(php) = &pool.application {
            let (rule, comments) = convert::request_settings(&php.request_settings);
            self.document.put(&table, "request_settings", rule, comments);
            if php.preloading != Preloading::Own {
                self.document
                    .put(&table, "preloader", php.preloading.word(), Vec::new());
            }
        }
    }

    fn options_for_php(&mut self) {
        if self.options.no_php_ini {
            self.lose(None, "-n", None, "name an empty file as php_ini");
        }
        let defines = self.options.defines.iter();
        for (name, _) in defines.filter(|(name, _)| !is_ours(name)) {
            self.lose(
                None,
                &format!("-d {name}"),
                None,
                "write it in php.ini, or as a php_value",
            );
        }
        if self.options.scan_dir.is_some() {
            let advice = "give it to the pools in env, as PHP_INI_SCAN_DIR";
            self.lose(None, "PHP_INI_SCAN_DIR", None, advice);
        }
    }

    fn settle(&mut self, pool: Option<&str>, name: &str, outcome: Outcome) {
        let table = match pool {
            Some(pool) => vec!["pool", pool],
            None => vec!["global"],
        };
        match outcome {
            Outcome::Nothing => {}
            Outcome::Lost(reason) => self.lose(pool, name, None, &reason),
            Outcome::Key { path, value, lost } => {
                let comments = self.comments(pool, name, None);
                self.put(&table, &path, value, comments);
                for reason in lost {
                    self.lose(pool, name, None, &reason);
                }
            }
            Outcome::Entries { path, entries, lost } => {
                for (key, value) in entries {
                    let comments = self.comments(pool, name, Some(&key));
                    let mut table = table.clone();
                    table.extend(path.split('.'));
                    self.document.put_entry(&table, &key, &value, comments);
                }
                for (key, reason) in lost {
                    self.lose(pool, name, Some(&key), &reason);
                }
            }
        }
    }

    fn put(&mut self, table: &[&str], path: &str, value: toml_edit::Value, comments: Vec<String>) {
        match path.strip_prefix("application.") {
            Some(key) => {
                let mut table = table.to_vec();
                table.push("application");
                self.document.put(&table, key, value, comments);
            }
            None => self.document.put(table, path, value, comments),
        }
    }

    /// The line that counts: the last, and of entries with one key the first.
    fn sight(&self, pool: Option<&str>, name: &str, key: Option<&str>) -> Option<&Sight> {
        let found = self.sights.get(&pool)?.get(name)?;
        match key {
            Some(_) => found.iter().find(|sight| sight.key.as_deref() == key).copied(),
            None => found.last().copied(),
        }
    }

    fn comments(&self, pool: Option<&str>, name: &str, key: Option<&str>) -> Vec<String> {
        let sight = self.sight(pool, name, key);
        sight.map_or_else(Vec::new, |sight| sight.comments.clone())
    }

    fn lose(&mut self, pool: Option<&str>, name: &str, key: Option<&str>, reason: &str) {
        let place = self
            .sight(pool, name, key)
            .map(|sight| (sight.path.clone(), sight.line));
        self.lost.push(Lost {
            place,
            pool: pool.map(str::to_owned),
            name: key.map_or_else(|| name.to_owned(), |key| format!("{name}[{key}]")),
            reason: reason.to_owned(),
        });
    }
}

/// The list that a directive adds to: flags are values.
fn list_of(name: &str) -> &str {
    match name {
        "php_flag" => "php_value",
        "php_admin_flag" => "php_admin_value",
        name => name,
    }
}

/// Whether an address is that of a unix socket.
fn is_unix(address: &Address) -> bool {
    matches!(address, Address::Unix(_))
}
