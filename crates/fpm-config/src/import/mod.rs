//! Converts a php-fpm configuration to TOML and lists what could not be converted. `convert` handles directives without
//! an exact equivalent. `write` builds the text, with comments that aren't from php-fpm's sample.

mod comments;
mod convert;
mod machine;
mod split;
mod write;

use crate::settings::is_ours;
use crate::survey::{Survey, Surveyed, survey};
use crate::{Journal, Machine, Options};
use convert::Converted;
use forkyard_config::php_fpm::FpmSetting;
use forkyard_config::{Address, Config, Location, can_be_named};
use machine::Elsewhere;
pub use split::apart;
use std::fmt;
use write::Document;

const ALL_SETTINGS: &str = "As in php-fpm. If you remove this line, a request can't change settings that run \
    code; see docs/explain/security.md.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// File and line, if any.
    pub location: Option<(String, usize)>,
    /// `None`: the global section.
    pub pool: Option<String>,
    pub name: String,
    pub reason: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((path, line)) = &self.location {
            write!(f, "{path}:{line}: ")?;
        }
        if let Some(pool) = &self.pool {
            write!(f, "[pool {pool}] ")?;
        }
        write!(f, "{} is not taken over: {}", self.name, self.reason)
    }
}

#[derive(Debug, Clone)]
pub struct Imported {
    /// The TOML, or `None` if php-fpm would reject the configuration; see the journal.
    pub text: Option<String>,
    /// The resolved configuration for a daemon that runs as root.
    pub config: Option<Config>,
    pub lost: Vec<Lost>,
    pub journal: Journal,
}

/// Converts a configuration. The caller need not be root, and users need not exist.
pub fn import(options: &Options, machine: &dyn Machine) -> Imported {
    let (survey, journal) = survey(options, &Elsewhere(machine));
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
        document: Document::new(&options.path()),
        lost: Vec::new(),
    };
    import.run(&survey);
    let Import { document, lost, .. } = import;
    Imported {
        text: Some(document.into_text()),
        config: Some(survey.config),
        lost,
        journal,
    }
}

struct Import<'i> {
    options: &'i Options,
    document: Document,
    lost: Vec<Lost>,
}

impl Import<'_> {
    fn run(&mut self, survey: &Survey) {
        self.section(None, &survey.global, convert::global);
        self.options_for_php();
        for (pool, section) in survey.config.pools.iter().zip(&survey.pools) {
            if !can_be_named(&pool.name) {
                self.lose_pool(&pool.name, section);
                continue;
            }
            // `listen` becomes a table if more than its address is set.
            let mut said = section.said.iter().filter(|(said, _)| said.location.is_some());
            let has_more = said.any(|(said, _)| said.name.starts_with("listen."));
            self.section(Some(&pool.name), section, |said| {
                convert::pool(said, pool, has_more)
            });
        }
    }

    fn section(
        &mut self,
        pool: Option<&str>,
        section: &Surveyed,
        outcome: impl Fn(&FpmSetting) -> Converted,
    ) {
        let table = match pool {
            Some(pool) => vec!["pool", pool],
            None => vec!["global"],
        };
        self.document
            .open(&table, comments::own(&section.comments).to_vec());
        // A list's entries are adjacent.
        let of_one_list =
            |a: &(FpmSetting, _), b: &(FpmSetting, _)| a.0.item.is_some() && a.0.name == b.0.name;
        for said in section.said.chunk_by(of_one_list) {
            match said {
                [(said, comments)] if said.item.is_none() => match outcome(said) {
                    Converted::Nothing => {}
                    Converted::Lost(reason) => self.lose(pool, said, &reason),
                    Converted::Key(key, value, lost) => {
                        self.put(&table, &key, value, comments);
                        for reason in lost {
                            self.lose(pool, said, &reason);
                        }
                    }
                },
                list => self.entries(pool, &table, list),
            }
        }
    }

    fn put(&mut self, table: &[&str], key: &str, value: toml_edit::Value, comments: &[String]) {
        let mut comments = comments::own(comments).to_vec();
        if key == "application.request_settings" && value.as_str() == Some("all") {
            comments.push(ALL_SETTINGS.to_owned());
        }
        match key.strip_prefix("application.") {
            Some(key) => {
                let mut table = table.to_vec();
                table.push("application");
                self.document.put(&table, key, value, comments);
            }
            None => self.document.put(table, key, value, comments),
        }
    }

    /// Keeps the first entry of each name, as php-fpm does, in the order of application.
    fn entries(&mut self, pool: Option<&str>, table: &[&str], list: &[(FpmSetting, Vec<String>)]) {
        let mut kept: Vec<(&str, &(FpmSetting, Vec<String>))> = Vec::new();
        let mut lost = Vec::new();
        for entry in list {
            let said = &entry.0;
            let name = said.item.as_deref().unwrap_or_default();
            let is_env = said.key == "env";
            let is_known = kept.iter().any(|(known, _)| *known == name);
            let reason = match name {
                "extension" | "zend_extension" if is_known => "name a second extension in php.ini",
                // Already converted to a key.
                ours if is_ours(ours) && !is_env => continue,
                _ if is_known => continue,
                name if name.contains(['=', '\0', '\n', '\r']) || (!is_env && name.contains(' ')) => {
                    "this can't be a name"
                }
                name => {
                    kept.push((name, entry));
                    continue;
                }
            };
            lost.push((said, reason));
        }
        for (name, (said, comments)) in kept.into_iter().rev() {
            let mut table = table.to_vec();
            table.extend(said.key.split('.'));
            let value = said.value.clone().unwrap_or_else(|| "".into());
            self.document
                .put_entry(&table, name, value, comments::own(comments).to_vec());
        }
        for (said, reason) in lost {
            self.lose(pool, said, reason);
        }
    }

    fn options_for_php(&mut self) {
        let options = self.options;
        if options.no_php_ini {
            self.lost(None, None, "-n".to_owned(), "name an empty file as php_ini");
        }
        for (name, _) in options.defines.iter().filter(|(name, _)| !is_ours(name)) {
            let reason = "write it in php.ini, or as a php_value";
            self.lost(None, None, format!("-d {name}"), reason);
        }
        if options.scan_dir.is_some() {
            let reason = "give it to the pools in env, as PHP_INI_SCAN_DIR";
            self.lost(None, None, "PHP_INI_SCAN_DIR".to_owned(), reason);
        }
    }

    fn lose_pool(&mut self, pool: &str, section: &Surveyed) {
        let location = section.said.iter().find_map(|(said, _)| said.location.as_ref());
        let pool = pool.escape_debug().to_string();
        let reason = "give it a name of at least one character, without control characters";
        self.lost(location, Some(&pool), "the pool".to_owned(), reason);
    }

    fn lose(&mut self, pool: Option<&str>, said: &FpmSetting, reason: &str) {
        let name = match &said.item {
            Some(item) => format!("{}[{item}]", said.name),
            None => said.name.to_owned(),
        };
        self.lost(said.location.as_ref(), pool, name, reason);
    }

    fn lost(&mut self, location: Option<&Location>, pool: Option<&str>, name: String, reason: &str) {
        self.lost.push(Lost {
            location: location.map(|location| (location.file.display().to_string(), location.line)),
            pool: pool.map(str::to_owned),
            name,
            reason: reason.to_owned(),
        });
    }
}

fn is_unix(address: &Address) -> bool {
    matches!(address, Address::Unix(_))
}
