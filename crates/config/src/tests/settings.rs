//! Compares the settings table with other lists of keys.

use super::*;
use crate::draft::PoolDraft;
use crate::flat_keys::FlatKeys;
use crate::report::{Diagnostics, Report};
use crate::settings::{self, Section};
use std::collections::BTreeSet;

/// The rows of two keys of a pool are in another list.
#[test]
fn what_is_read_is_what_is_in_the_table() {
    let mut flat_keys = FlatKeys::of(&[], &Location::of_file(Path::new("f.toml")));
    let mut diagnostics = Diagnostics::default();
    PoolDraft::read(&mut flat_keys, &mut Report::pool(&mut diagnostics, "www"));
    let read: BTreeSet<&str> = flat_keys.known.into_iter().collect();
    assert_eq!(read, settings::keys(Section::Pool).into_iter().collect());
}

#[test]
fn every_row_has_a_key_or_a_directive_and_a_reason() {
    for setting in settings::rows() {
        let name = setting.directive.map_or(setting.key, |directive| directive.name);
        assert!(!name.is_empty() && !setting.meaning.is_empty(), "{setting:?}");
        assert_eq!(setting.key.is_empty(), setting.absence.is_some(), "{name}");
    }
}

#[test]
fn no_name_is_there_twice() {
    let keys: Vec<_> = settings::all()
        .map(|setting| (setting.section.title(), setting.section as u8, setting.key))
        .collect();
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    for is_global in [true, false] {
        let names: Vec<&str> = settings::directives(is_global)
            .map(|(directive, _)| directive.name)
            .collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}

fn with(setting: &settings::Setting, value: &str) -> String {
    let line = format!("{} = {value}\n", setting.key);
    let put = |section| {
        if setting.section == section {
            line.as_str()
        } else {
            ""
        }
    };
    if setting.section.is_of_jobs() {
        return format!(
            "[pool.www]\nlisten = \"127.0.0.1:9000\"\nuser = \"www-data\"\npm = \"static\"\nmax_children = 4\n\
             [pool.www.application]\nruntime = \"php\"\nversion = \"8.2\"\n[jobs]\n{}[jobs.queue.mail]\n\
             pool = \"www\"\nscript = \"/srv/jobs.php\"\n{}[jobs.schedule.s]\nqueue = \"mail\"\n\
             cron = \"0 1 * * *\"\n{}",
            put(Section::Jobs),
            put(Section::JobQueue),
            put(Section::JobSchedule)
        );
    }
    if setting.section == Section::Applications {
        return format!(
            "[pool.www]\nlisten = \"/run/a.sock\"\nrouting = \"application\"\n[pool.www.applications]\n\
             directories = [\"/srv/www\"]\n{line}"
        );
    }
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
    for setting in
        settings::all().filter(|setting| !setting.section.is_application() || setting.section == Section::Php)
    {
        let Some(value) = setting.literal().filter(|text| !text.contains('/')) else {
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
