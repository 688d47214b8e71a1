//! Tests of the sample, the documentation's keys, and damaged samples.

use crate::model::Load;
use std::collections::BTreeSet;
use std::path::PathBuf;

use super::*;
use crate::settings::{self, Sample, Section};

const SAMPLE: &str = include_str!("../../../../conf/forkyard.toml");

const DOCUMENTATION: &str = include_str!("../../../../docs/reference/configuration.md");

#[test]
fn the_sample_is_valid() {
    let loaded = parsed(SAMPLE, &ROOT).unwrap();
    assert_eq!(loaded.warnings, []);
    let pool = &loaded.config.pools[0];
    assert_eq!(
        pool.listen.address,
        Address::Unix(PathBuf::from("/run/forkyard-www.sock"))
    );
    assert_eq!(pool.account.user.as_deref(), Some("www-data"));
}

fn whole_sample() -> String {
    let optional = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest.to_owned(),
        _ => line.to_owned(),
    };
    SAMPLE.lines().map(optional).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_samples_optional_keys_are_valid_and_show_the_defaults() {
    let machine = Machine {
        root: true,
        files: Vec::new(),
    };
    // Remove keys that conflict with chroot or warm_up.
    let text = whole_sample()
        .replace("\nopcache_cache", "\n#opcache_cache")
        .replace("\nrelease", "\n#release")
        .replace("\npreloader =", "\n#preloader =");
    let config = match parsed(&text, &machine) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{errors}"),
    };
    let plain = valid(SAMPLE);
    let examples = Global {
        process_priority: Some(-5),
        rlimit_core: Some(CoreLimit::Unlimited),
        web: Some(Web {
            address: Address::Tcp(([127, 0, 0, 1], 9180).into()),
            hosts: vec!["numbers.example.org".to_owned()],
        }),
        ..plain.global.clone()
    };
    assert_eq!(config.global, examples);
    let (Application::Php(php), Application::Php(plain_php)) =
        (&config.pools[0].application, &plain.pools[0].application)
    else {
        panic!("PHP");
    };
    assert_eq!(php.limit_extensions, plain_php.limit_extensions);
    assert_eq!(php.preloader_idle_timeout, plain_php.preloader_idle_timeout);
    assert_eq!(php.start_timeout, plain_php.start_timeout);
    let (all, plain) = (config.pools[0].as_ref(), plain.pools[0].as_ref().clone());
    let examples = Pool {
        http_listen: all.http_listen.clone(),
        confine: all.confine.clone(),
        load: Load {
            shares: all.load.shares,
            ..plain.load.clone()
        },
        application: all.application.clone(),
        listen: Listen {
            allowed_clients: all.listen.allowed_clients.clone(),
            ..plain.listen.clone()
        },
        pages: Pages {
            status_path: all.pages.status_path.clone(),
            status_listen: all.pages.status_listen.clone(),
            ping_path: all.pages.ping_path.clone(),
            ..plain.pages.clone()
        },
        logs: Logs {
            access: all.logs.access.clone(),
            app_log: all.logs.app_log.clone(),
            catch_workers_output: all.logs.catch_workers_output,
            ..plain.logs.clone()
        },
        environment: Environment {
            env_file: all.environment.env_file.clone(),
            env: all.environment.env.clone(),
            own_env: Vec::new(),
            ..plain.environment.clone()
        },
        setup: ProcessSetup {
            chdir: all.setup.chdir.clone(),
            chroot: all.setup.chroot.clone(),
            origin: None,
            rlimit_core: all.setup.rlimit_core,
            process_priority: all.setup.process_priority,
            ..plain.setup.clone()
        },
        retirement: Retirement {
            told_memory_limit: all.retirement.told_memory_limit,
            memory_limit: all.retirement.memory_limit,
            max_requests_jitter: 0,
            ..plain.retirement
        },
        ..plain
    };
    assert_eq!(*all, examples);
}

/// The keys of a section, below the name of its table.
fn paths(section: Section) -> impl Iterator<Item = String> {
    let table = match section {
        Section::Global => "global",
        Section::Jobs => "jobs",
        Section::JobQueue => "jobs.queue",
        Section::JobSchedule => "jobs.schedule",
        _ => "pool",
    };
    settings::of(section).map(move |setting| format!("{table}.{}", setting.path()))
}

fn all_keys() -> BTreeSet<String> {
    [Section::Global, Section::Pool, Section::Php]
        .into_iter()
        .flat_map(paths)
        .collect()
}

#[test]
fn every_key_is_in_the_sample() {
    let text = whole_sample();
    let table: toml::Table = toml::from_str(&text).unwrap();
    let mut shown = BTreeSet::new();
    let free = [
        "pool.env",
        "pool.application.php_value",
        "pool.application.php_flag",
    ];
    let free = free.into_iter().chain([
        "pool.application.php_admin_value",
        "pool.application.php_admin_flag",
        "pool.application.rlimits",
        "pool.applications.groups",
        "jobs.queue.kinds",
    ]);
    let free: Vec<&str> = free.collect();
    let mut rest: Vec<(String, toml::Value)> = vec![("global".to_owned(), table["global"].clone())];
    let mut jobs = table["jobs"].as_table().unwrap().clone();
    for kind in ["queue", "schedule"] {
        let named = jobs.remove(kind).unwrap();
        let named = named.as_table().unwrap().values();
        rest.extend(named.map(|table| (format!("jobs.{kind}"), table.clone())));
    }
    rest.push(("jobs".to_owned(), jobs.into()));
    let pools = table["pool"].as_table().unwrap();
    rest.extend(pools.values().map(|pool| ("pool".to_owned(), pool.clone())));
    while let Some((path, value)) = rest.pop() {
        match value {
            toml::Value::Table(inner) if !free.contains(&path.as_str()) => {
                rest.extend(
                    inner
                        .into_iter()
                        .map(|(key, value)| (format!("{path}.{key}"), value)),
                );
            }
            _ => {
                shown.insert(path);
            }
        }
    }
    let others = [
        Section::Cgi,
        Section::FastCgi,
        Section::Http,
        Section::Wrapped,
        Section::Applications,
        Section::Jobs,
        Section::JobQueue,
        Section::JobSchedule,
    ];
    let others = others.into_iter().flat_map(paths);
    // Keys that conflict with others appear only in the documents.
    let hidden = settings::all().filter(|setting| {
        matches!(setting.sample, Sample::Nowhere | Sample::Beside(_))
            && (setting.section.is_application() || setting.section == Section::Pool)
    });
    let hidden: BTreeSet<String> = hidden.map(|setting| format!("pool.{}", setting.path())).collect();
    let expected = all_keys().into_iter().chain(others);
    let expected: BTreeSet<String> = expected
        .filter(|key| shown.contains(key) || !hidden.contains(key))
        .collect();
    assert_eq!(shown, expected);
}

#[test]
fn every_key_is_documented() {
    let mut undocumented = Vec::new();
    let sections: Vec<&str> = DOCUMENTATION.split("\n## ").collect();
    let section = |title: &str| {
        *sections
            .iter()
            .find(|section| section.starts_with(title))
            .unwrap()
    };
    for key in all_keys() {
        let (section, key) = match key.split_once('.').unwrap() {
            ("global", key) => (section("`[global]`"), key),
            (_, key) => match key.strip_prefix("application.") {
                Some(key) => (section("`[pool.NAME.application]`"), key),
                None => (section("`[pool.NAME]`"), key),
            },
        };
        if !section.contains(&format!("\n| `{key}` |")) {
            undocumented.push(key.to_owned());
        }
    }
    assert_eq!(undocumented, [""; 0]);
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

#[test]
fn no_text_makes_it_panic() {
    let pieces = [
        "[",
        "]",
        "{",
        "}",
        "=",
        ".",
        "\"",
        "'",
        "\"\"\"",
        "\n",
        "#",
        "\\",
        "\\u0000",
        "é",
        "\0",
        "-1",
        "99999999999999999999",
        "0x",
        "nan",
        "1979-05-27T07:32:00Z",
        "true",
        "[]",
        "{}",
        "[pool]",
        "[[pool]]",
        "[pool.www]",
        "\"\" = 1",
        "listen",
        "$pool",
        "application",
        "env",
        "include",
        "= 1e400",
        "0",
        "pool.x.y.z = 1",
        "\"a.b\"",
        "1.5",
        "[global.process]",
    ];
    let sample = whole_sample();
    let seeds = std::env::var("FORKYARD_SIM_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok());
    for seed in 1..=seeds.unwrap_or(3_000) {
        let mut random = Random(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
        let mut text: Vec<char> = if random.below(2) == 0 { &sample } else { SAMPLE }
            .chars()
            .collect();
        for _ in 0..=random.below(6) {
            let at = random.below(text.len());
            match random.below(4) {
                0 => drop(text.drain(at..(at + random.below(40)).min(text.len()))),
                1 => drop(text.splice(at..at, pieces[random.below(pieces.len())].chars())),
                2 => {
                    let end = (at + random.below(60)).min(text.len());
                    let copy: Vec<char> = text[at..end].to_vec();
                    let target = random.below(text.len());
                    drop(text.splice(target..target, copy));
                }
                _ => {
                    let end = (at + 1 + random.below(8)).min(text.len());
                    drop(text.splice(at..end, pieces[random.below(pieces.len())].chars()));
                }
            }
        }
        let text: String = text.into_iter().collect();
        let machine = if seed % 2 == 0 { &ROOT } else { &USER };
        let caught = std::panic::catch_unwind(|| found(&text, machine).len());
        assert!(caught.is_ok(), "seed {seed}, text\n{text}");
    }
}
