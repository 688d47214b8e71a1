//! Pools that share a preloader: what its process is made from, which they have to agree on, and what stays each pool's
//! own. What is a pool's own is applied in its workers, after the fork.

use super::application::{Application, Php, Preloading, RequestSettings};
use super::model::{Address, Confine, Limits, Listen, Pool, ProcessManager};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// Environment variables that say where PHP looks for php.ini.
const START_VARIABLES: [&str; 2] = ["PHPRC", "PHP_INI_SCAN_DIR"];

/// Whether PHP has to know a php.ini setting before it starts: extensions, and all of OPcache's.
pub fn is_start_setting(name: &str) -> bool {
    name == "extension" || name == "zend_extension" || name.starts_with("opcache.")
}

/// Whether pools that share a preloader have to agree on a php.ini setting. Code that was compiled where a function
/// exists can't be run where it does not.
pub fn is_common_setting(name: &str) -> bool {
    is_start_setting(name) || name == "disable_functions" || name == "disable_classes"
}

/// The group of pools that a pool shares its preloader with; `None`: it has one of its own.
pub fn group(pool: &Pool) -> Option<&str> {
    match &pool.application {
        Application::Php(Php {
            preloading: Preloading::Shared(group),
            ..
        }) => Some(group),
        _ => None,
    }
}

/// A preloader's name in titles and log lines: its pool's, or, if it is shared, the group's and the pools'.
pub fn label<'p>(pools: impl IntoIterator<Item = &'p Pool>) -> String {
    let mut word = None;
    let names: Vec<&str> = pools
        .into_iter()
        .map(|pool| {
            if let Application::Php(php) = &pool.application {
                word = group(pool).map(|_| php.preloading.word());
            }
            pool.name.as_str()
        })
        .collect();
    let names = names.join("+");
    match word {
        Some(word) => format!("{word} {names}"),
        None => names,
    }
}

/// What a process that is shared is made from: the pool without all that is its own. Equal for pools that can share.
pub fn common(pool: &Pool) -> Pool {
    let Pool {
        title,
        user,
        group: unix_group,
        chroot,
        clear_env,
        rlimit_files,
        rlimit_core,
        process_priority,
        process_dumpable,
        no_new_privs,
        confine,
        reload,
        ..
    } = pool.clone();
    Pool {
        name: group(pool).unwrap_or_default().to_owned(),
        title,
        listen: Listen {
            address: Address::Unix(PathBuf::new()),
            backlog: 0,
            owner: None,
            group: None,
            mode: 0,
            allowed_clients: Vec::new(),
            wrong_clients: Vec::new(),
            acl_users: Vec::new(),
            acl_groups: Vec::new(),
        },
        user,
        group: unix_group,
        pm: ProcessManager::Static { max_children: 1 },
        max_requests: None,
        request_terminate_timeout: None,
        request_terminate_timeout_track_finished: false,
        slow_log: None,
        client_timeout: Duration::ZERO,
        keepalive_timeout: Duration::ZERO,
        limits: Limits {
            params_bytes: 0,
            params_count: 0,
        },
        chdir: None,
        chroot,
        clear_env,
        env: START_VARIABLES
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), variable(pool, name)?.to_owned())))
            .collect(),
        own_env: Vec::new(),
        origin: None,
        tells_memory: false,
        memory_limit: None,
        max_requests_jitter: 0,
        rlimit_files,
        rlimit_core,
        process_priority,
        process_dumpable,
        no_new_privs,
        confine,
        status_path: None,
        status_listen: None,
        ping_path: None,
        ping_response: String::new(),
        catch_workers_output: false,
        decorate_workers_output: false,
        app_log: None,
        friendly_error_pages: false,
        reload,
        access: None,
        applications: None,
        application: match &pool.application {
            Application::Php(php) => Application::Php(common_php(php)),
            other => other.clone(),
        },
    }
}

fn common_php(php: &Php) -> Php {
    Php {
        limit_extensions: Vec::new(),
        script_root: None,
        request_settings: RequestSettings::None,
        php_value: Vec::new(),
        php_admin_value: common_settings(php),
        preloader_idle_timeout: Duration::ZERO,
        ..php.clone()
    }
}

/// The settings that pools have to agree on, by name; one name's values in the order in which they were written.
fn common_settings(php: &Php) -> Vec<(String, String)> {
    let all = php.php_value.iter().chain(&php.php_admin_value);
    let mut settings: Vec<(String, String)> =
        all.filter(|(name, _)| is_common_setting(name)).cloned().collect();
    settings.sort_by(|(a, _), (b, _)| a.cmp(b));
    settings
}

fn variable<'p>(pool: &'p Pool, name: &str) -> Option<&'p str> {
    let found = pool.env.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

/// Why pools can't have the preloader that they ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Where the pools are in the list; the first is the one that the words are about, and there is one.
    pub pools: Vec<usize>,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub remedy: &'static str,
}

/// Names of pools in one message.
const MOST_NAMES: usize = 3;

/// The pools that can't share as they ask to: each is compared with the first of those that most of its group are like.
/// Those that differ in the same are told of together.
pub fn conflicts(pools: &[&Pool]) -> Vec<Conflict> {
    let members = || pools.iter().enumerate().filter(|(_, pool)| group(pool).is_some());
    // The pools of each group that are alike, by what they have in common. Written out it is quicker to find.
    let mut alike: HashMap<String, (usize, usize)> = HashMap::new();
    for (at, pool) in members() {
        let (_, count) = alike.entry(format!("{:?}", common(pool))).or_insert((at, 0));
        *count += 1;
    }
    let mut models: HashMap<&str, (usize, usize)> = HashMap::new();
    for (at, count) in alike.into_values() {
        let Some(group) = group(pools[at]) else { continue };
        let model = models.entry(group).or_insert((at, count));
        if (count, usize::MAX - at) > (model.1, usize::MAX - model.0) {
            *model = (at, count);
        }
    }
    let mut found: Vec<(Cause, usize, Vec<usize>)> = Vec::new();
    for (at, pool) in members() {
        let model = group(pool)
            .and_then(|group| models.get(group))
            .map_or(at, |(at, _)| *at);
        let cgroup = pool.confine.cgroup.is_some().then_some(Cause::Cgroup);
        let difference = || difference(pools[model], pool).map(Cause::Key);
        let setting = || setting_that_differs(pools[model], pool).map(Cause::Setting);
        let Some(cause) = cgroup.or_else(difference).or_else(setting) else {
            continue;
        };
        let same = found
            .iter_mut()
            .find(|(known, with, _)| *known == cause && *with == model);
        match same {
            Some((.., list)) => list.push(at),
            None => found.push((cause, model, vec![at])),
        }
    }
    found
        .into_iter()
        .map(|(cause, model, list)| cause.conflict(pools, model, list))
        .collect()
}

/// What keeps a pool from sharing.
#[derive(Debug, PartialEq, Eq)]
enum Cause {
    /// It has a control group.
    Cgroup,
    /// A key of forkyard's differs.
    Key(&'static str),
    /// A setting of PHP's differs.
    Setting(String),
}

impl Cause {
    fn conflict(&self, pools: &[&Pool], model: usize, list: Vec<usize>) -> Conflict {
        let names: Vec<&str> = list.iter().map(|at| pools[*at].name.as_str()).collect();
        let who = match names.as_slice() {
            [one] => format!("pool {one}"),
            some if some.len() <= MOST_NAMES => format!("pools {}", some.join(", ")),
            many => {
                let (shown, rest) = many.split_at(MOST_NAMES);
                format!("pools {} and {} others", shown.join(", "), rest.len())
            }
        };
        let other = &pools[model].name;
        let (problem, remedy) = match self {
            Cause::Cgroup if names.len() == 1 => (
                format!("{who} can't share a preloader: it has a cgroup of its own"),
                "write preloader = \"own\", or leave out cgroup",
            ),
            Cause::Cgroup => (
                format!("{who} can't share a preloader: they have cgroups of their own"),
                "write preloader = \"own\", or leave out cgroup",
            ),
            Cause::Key("user") => (
                format!("{who} can't share pool {other}'s preloader: user differs"),
                "only pools of one user share: write preloader = \"shared:NAME\" with another NAME for each user, or \
                 \"own\"",
            ),
            Cause::Key(key) => (
                format!("{who} can't share pool {other}'s preloader: {key} differs"),
                "write the same in both, or another group, such as preloader = \"shared:NAME\"",
            ),
            Cause::Setting(name) => (
                format!(
                    "{who} can't share pool {other}'s preloader: {name} is {} there and {} here",
                    shown(pools[model], name),
                    shown(pools[list[0]], name)
                ),
                "PHP has one value for all: write the same in both, or another group, such as preloader = \
                 \"shared:NAME\"",
            ),
        };
        Conflict {
            pools: list,
            problem,
            remedy,
        }
    }
}

/// The first key in which two pools differ that belongs to their process.
fn difference(a: &Pool, b: &Pool) -> Option<&'static str> {
    let is_same_variable = |name| variable(a, name) == variable(b, name);
    let rules = [
        ("user", a.user == b.user),
        ("group", a.group == b.group),
        ("chroot", a.chroot == b.chroot),
        ("clear_env", a.clear_env == b.clear_env),
        ("rlimit_files", a.rlimit_files == b.rlimit_files),
        ("rlimit_core", a.rlimit_core == b.rlimit_core),
        ("process.priority", a.process_priority == b.process_priority),
        ("process.dumpable", a.process_dumpable == b.process_dumpable),
        ("no_new_privs", a.no_new_privs == b.no_new_privs),
        ("reload", a.reload == b.reload),
        ("env.PHPRC", is_same_variable("PHPRC")),
        ("env.PHP_INI_SCAN_DIR", is_same_variable("PHP_INI_SCAN_DIR")),
    ];
    first_unlike(&rules)
        .or_else(|| confine_difference(&a.confine, &b.confine))
        .or_else(|| php_difference(php(a)?, php(b)?))
}

/// The first key that is not the same.
fn first_unlike(rules: &[(&'static str, bool)]) -> Option<&'static str> {
    let found = rules.iter().find(|(_, is_same)| !is_same);
    found.map(|(key, _)| *key)
}

fn confine_difference(a: &Confine, b: &Confine) -> Option<&'static str> {
    let rules = [
        ("apparmor_hat", a.apparmor_hat == b.apparmor_hat),
        ("confine.read or confine.write", a.paths == b.paths),
        (
            "confine.deny_system_calls",
            a.deny_system_calls == b.deny_system_calls,
        ),
        ("confine.private_tmp", a.private_tmp == b.private_tmp),
    ];
    first_unlike(&rules)
}

fn php_difference(a: &Php, b: &Php) -> Option<&'static str> {
    let rules = [
        ("version", a.version == b.version),
        ("library", a.library == b.library),
        ("php_ini", a.php_ini == b.php_ini),
        ("start_timeout", a.start_timeout == b.start_timeout),
        ("warm_up", a.warm_up == b.warm_up),
        ("warm_up_time", a.warm_up_time == b.warm_up_time),
    ];
    first_unlike(&rules)
}

fn setting_that_differs(a: &Pool, b: &Pool) -> Option<String> {
    let (a, b) = (common_settings(php(a)?), common_settings(php(b)?));
    let mut names: Vec<&String> = a.iter().chain(&b).map(|(name, _)| name).collect();
    names.sort_unstable();
    names.dedup();
    let values = |list: &[(String, String)], name: &str| -> Vec<String> {
        let own = list.iter().filter(|(known, _)| known == name);
        own.map(|(_, value)| value.clone()).collect()
    };
    names
        .into_iter()
        .find(|name| values(&a, name) != values(&b, name))
        .cloned()
}

/// A setting as one pool has it.
fn shown(pool: &Pool, name: &str) -> String {
    let settings = php(pool).map(common_settings).unwrap_or_default();
    let own = settings.into_iter().filter(|(known, _)| known == name);
    let values: Vec<String> = own.map(|(_, value)| format!("{value:?}")).collect();
    if values.is_empty() {
        "not set".to_owned()
    } else {
        values.join(" and ")
    }
}

fn php(pool: &Pool) -> Option<&Php> {
    match &pool.application {
        Application::Php(php) => Some(php),
        _ => None,
    }
}
