//! The table of keys against everything that knows keys, too.

use super::*;
use crate::config::draft::{CgiDraft, GlobalDraft, HttpDraft, PhpDraft, PoolDraft, WrappedDraft};
use crate::config::fpm::directives;
use crate::config::settings::{self, ABSENT, SETTINGS, Section, of, of_directive};
use std::collections::BTreeSet;

const DOCUMENTATION: &str = include_str!("../../../docs/configuration.md");
const RUNTIMES: &str = include_str!("../../../docs/runtimes.md");

#[test]
fn the_documentation_shows_the_table() {
    let tables = [
        settings::render(Section::Global),
        settings::render(Section::Pool),
        settings::render(Section::Php),
        settings::render_absent(),
    ];
    let cgi = settings::render_runtime(Section::Cgi);
    assert!(
        RUNTIMES.contains(&cgi),
        "docs/runtimes.md has to have this table:\n{cgi}"
    );
    for setting in of(Section::Http) {
        let text = format!("`{}` is {}.", setting.key, setting.meaning).replace([' ', '\n'], "");
        assert!(
            RUNTIMES.replace([' ', '\n'], "").contains(&text),
            "{}",
            setting.key
        );
    }
    for table in tables {
        assert!(
            DOCUMENTATION.contains(&format!("\n\n{table}\n")) || DOCUMENTATION.ends_with(&table),
            "docs/configuration.md has to have this table:\n{table}"
        );
    }
}

#[test]
fn what_is_read_is_what_is_in_the_table() {
    let listed = |section, prefix: &str| -> BTreeSet<String> {
        of(section)
            .map(|setting| format!("{prefix}{}", setting.key))
            .collect()
    };
    let read = |keys: &[&str]| -> BTreeSet<String> { keys.iter().map(|key| (*key).to_owned()).collect() };
    assert_eq!(listed(Section::Global, ""), read(GlobalDraft::KEYS));
    assert_eq!(listed(Section::Pool, ""), read(PoolDraft::KEYS));
    // Its first key is also the pool's: it says which of the others there are.
    let mut php = listed(Section::Php, "application.");
    php.remove("application.runtime");
    assert_eq!(php, read(PhpDraft::KEYS));
    assert_eq!(listed(Section::Cgi, "application."), read(CgiDraft::KEYS));
    assert_eq!(listed(Section::Http, "application."), read(HttpDraft::KEYS));
    assert_eq!(listed(Section::Wrapped, "application."), read(WrappedDraft::KEYS));
}

#[test]
fn every_directive_of_php_fpm_has_a_key_or_is_absent() {
    for directive in directives::DIRECTIVES {
        let is_global = directive.section == directives::Section::Global;
        let has_key = of_directive(directive.name, is_global).is_some();
        let is_absent = settings::absence(directive.name).is_some();
        assert!(has_key != is_absent, "{}: a key or a reason", directive.name);
    }
    let is_directive = |name: &str| {
        directives::DIRECTIVES
            .iter()
            .any(|directive| directive.name == name)
    };
    for name in ABSENT.iter().flat_map(|absent| absent.directives) {
        assert!(is_directive(name), "{name}");
    }
    for setting in SETTINGS.iter().filter(|setting| !setting.directive.is_empty()) {
        assert!(is_directive(setting.directive), "{}", setting.directive);
    }
}

/// A configuration with one key more.
fn with(setting: &settings::Setting, value: &str) -> String {
    let line = format!("{} = {value}\n", setting.key);
    let put = |section| {
        if setting.section == section {
            line.as_str()
        } else {
            ""
        }
    };
    // The manager for which the key is meant.
    let (pm, spare) = match setting.key {
        "process_idle_timeout" => ("ondemand", ""),
        "max_spawn_rate" => ("dynamic", "min_spare_servers = 1\nmax_spare_servers = 2\n"),
        _ => ("static", ""),
    };
    let listen = match setting.key {
        key if key.starts_with("listen.") => "listen.address = \"/run/a.sock\"",
        _ => "listen = \"/run/a.sock\"",
    };
    format!(
        "[global]\n{}[pool.www]\n{listen}\nuser = \"www-data\"\npm = \"{pm}\"\nmax_children = 4\n{spare}{}\
         [pool.www.application]\nruntime = \"php\"\nversion = \"8.2\"\n{}",
        put(Section::Global),
        put(Section::Pool),
        put(Section::Php)
    )
}

#[test]
fn a_default_that_is_written_changes_nothing() {
    let mut seen = 0;
    for setting in SETTINGS
        .iter()
        .filter(|setting| !setting.section.is_application() || setting.section == Section::Php)
    {
        let literal = setting
            .default
            .strip_prefix('`')
            .and_then(|text| text.strip_suffix('`'));
        let Some(value) = literal.filter(|text| !text.contains('/')) else {
            continue;
        };
        let machine = Machine {
            root: true,
            files: Vec::new(),
        };
        let text = with(setting, value);
        let written = parsed(&text, &machine).unwrap_or_else(|errors| panic!("{}: {errors}", setting.key));
        let line = format!("{} = {value}\n", setting.key);
        let plain = valid(&text.replacen(&line, "", 1));
        assert_eq!(written.config, plain, "{}", setting.key);
        seen += 1;
    }
    assert!(seen > 25, "only {seen} defaults are written out");
}
