//! Resolves `[pool.NAME.applications]`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use super::pool::{absolute, existing, positive};
use super::release;
use crate::application::MOST_CONCURRENCY;
use crate::applications::Applications;
use crate::draft::{ApplicationsDraft, PoolText};
use crate::flat_keys::{Field, Written};
use crate::model::ProcessManager;
use crate::release::Release;
use crate::report::{Report, WorldReport};
use crate::units::{Text, Whole};
use crate::value::quoted;
use forkyard_core::applications::{Options, RestartMethod};

/// Passenger's default.
const DEFAULT_MAX: NonZeroU32 = NonZeroU32::new(6).expect("it is not zero");
const DEFAULT_SPAWNING: NonZeroU32 = NonZeroU32::new(4).expect("it is not zero");
const DEFAULT_ROOT_PARAMETER: &str = "FORKYARD_APP_ROOT";
const DEFAULT_RESTART_DIR: &str = "tmp";
const DEFAULT_STAT_THROTTLE: Duration = Duration::from_secs(10);
const DEFAULT_FORGET_AFTER: Duration = Duration::from_secs(3600);
/// Debian's first uid for people.
const DEFAULT_MIN_UID: u32 = 1000;
/// Each application's scoreboard has one page per instance, and one more.
const MOST_INSTANCES: i64 = 100_000;
const MOST: i64 = u32::MAX as i64;
/// The router inspects all members at its start.
const MOST_MEMBERS: usize = 1000;

/// Resolves an application pool's applications. Reports their keys in other pools.
pub(super) fn resolve(text: &PoolText, report: &mut WorldReport<'_>) -> Option<Option<Applications>> {
    if text.is_routed() {
        return applications(text, &text.applications, report).map(Some);
    }
    if let Some(location) = &text.applications_location {
        report.missing(
            location,
            "routing",
            "routing = \"application\", which these keys belong to; or leave them out",
        );
    }
    Some(None)
}

/// The workers of an application: one more than the pool's maximum, for a rolling restart.
pub(super) fn manager(applications: &Applications) -> ProcessManager {
    ProcessManager::Ordered {
        max_children: applications.max.get().saturating_add(1),
    }
}

fn applications(
    text: &PoolText,
    draft: &ApplicationsDraft,
    report: &mut WorldReport<'_>,
) -> Option<Applications> {
    without_effect(text, report);
    let write = "directories = [\"/srv\"], below which the applications are";
    let directories = report.require(
        &draft.directories,
        &text.location,
        "applications.directories",
        write,
    );
    let directories = directories.map(|written| {
        let one = |directory: Written<Text>| {
            let path = absolute(&directory, report)?;
            existing(&directory, &path, report);
            Some(path)
        };
        let all: Vec<_> = written.each().filter_map(one).collect();
        if written.value.0.is_empty() {
            report.rule(written, "it is empty", "give at least one directory");
        }
        all
    });
    let max = count(&draft.max, MOST_INSTANCES, report).unwrap_or(DEFAULT_MAX);
    Some(Applications {
        directories: directories.filter(|all| !all.is_empty())?,
        root_parameter: root_parameter(&draft.root_parameter, report),
        max,
        max_spawning: count(&draft.max_spawning, MOST_INSTANCES, report).unwrap_or(DEFAULT_SPAWNING),
        reserve: reserve(&draft.reserve, max, report),
        concurrency: number(&draft.concurrency, MOST_CONCURRENCY.into(), report),
        options: options(draft, max, report),
        restart_dir: draft.restart_dir.written().and_then(|written| {
            let path = Path::new(&written.value.0);
            let flat_keys = path.components().any(|part| part == Component::ParentDir);
            if flat_keys || written.value.0.is_empty() {
                let problem = format!("{} does not stay in the application", quoted(&written.value.0));
                report.rule(
                    written,
                    problem,
                    "give a path without .., relative to the application's root",
                );
                return None;
            }
            (path != Path::new(DEFAULT_RESTART_DIR)).then(|| path.to_owned())
        }),
        stat_throttle_rate: draft.stat_throttle_rate.or(DEFAULT_STAT_THROTTLE),
        max_request_queue_time: draft.max_request_queue_time.above_zero(),
        forget_after: draft.forget_after.or(DEFAULT_FORGET_AFTER),
        min_uid: number(&draft.min_uid, MOST, report).unwrap_or(DEFAULT_MIN_UID),
        user_switching: user_switching(draft, report),
        user_mounts: draft.user_mounts.or(false),
        default_user: user(&draft.default_user, report),
        router_user: user(&draft.router_user, report),
        releases: releases(text, report),
        groups: groups(draft, report),
    })
}

fn releases(text: &PoolText, report: &mut Report<'_>) -> Option<Box<Release>> {
    let written = text.applications.releases.written()?;
    let name = &written.value.0;
    let mut parts = Path::new(name).components();
    let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    if !is_name || name.contains('/') || name.contains(char::is_control) {
        let problem = format!("{} is no name of a link", quoted(name));
        report.rule(
            written,
            problem,
            "give a name without slashes and control characters, such as \"current\"",
        );
        return None;
    }
    release::with_steps(PathBuf::from(name), &text.draft, report)
}

/// The default reserve is 0 for one or two places: otherwise no application could have a second instance.
fn reserve(field: &Field<Whole>, max: NonZeroU32, report: &mut Report<'_>) -> u32 {
    let max = max.get();
    let Some(reserve) = number(field, MOST, report) else {
        return if max > 2 { max.div_ceil(10) } else { 0 };
    };
    if let (Some(written), true) = (field.written(), reserve >= max) {
        let problem = format!("{reserve} is all that there are: applications.max is {max}");
        report.rule(written, problem, format!("give at most {}", max - 1));
    }
    reserve
}

/// Whether applications run as their owners. Otherwise `default_user` must be set. Always false without root, so that a
/// reload that changes the setting doesn't restart the router.
fn user_switching(draft: &ApplicationsDraft, report: &mut WorldReport<'_>) -> bool {
    if !report.world.is_root() {
        return false;
    }
    let Some(written) = draft.user_switching.written() else {
        return true;
    };
    if !written.value.0 && draft.default_user.is_absent() {
        let problem = "it is false, and the user whom all applications run as is missing";
        report.rule(written, problem, "set applications.default_user");
    }
    written.value.0
}

fn options(draft: &ApplicationsDraft, max: NonZeroU32, report: &mut Report<'_>) -> Options {
    let defaults = Options::default();
    let max_per_app = positive_count(&draft.max_per_app, report);
    let min_instances = number(&draft.min_instances, MOST_INSTANCES, report).unwrap_or(0);
    let most = max_per_app.map_or(max, |most| most.min(max)).get();
    if let (Some(written), true) = (draft.min_instances.written(), min_instances > most) {
        let problem = format!("{min_instances} is more than an application may have, which is {most}");
        report.rule(written, problem, format!("give at most {most}"));
    }
    Options {
        max_per_app,
        min_instances,
        max_requests: positive_count(&draft.max_requests, report),
        max_requests_jitter: number(&draft.max_requests_jitter, MOST, report).unwrap_or(0),
        max_idle_time: match draft.max_idle_time.written() {
            Some(_) => draft.max_idle_time.above_zero(),
            None => defaults.max_idle_time,
        },
        use_global_queue: draft.use_global_queue.or(defaults.use_global_queue),
        max_request_queue_size: match draft.max_request_queue_size.written() {
            Some(_) => positive_count(&draft.max_request_queue_size, report),
            None => defaults.max_request_queue_size,
        },
        start_timeout: positive(&draft.start_timeout, defaults.start_timeout, report),
        stop_timeout: positive(&draft.stop_timeout, defaults.stop_timeout, report),
        drain_timeout: draft.drain_timeout.above_zero(),
        work_timeout: positive(&draft.work_timeout, defaults.work_timeout, report),
        max_request_time: draft.max_request_time.above_zero(),
        memory_limit: draft.memory_limit.get().filter(|limit| *limit > 0),
        restart_method: match draft.rolling_restarts.written().map(|written| written.value.0) {
            None => defaults.restart_method,
            Some(true) => RestartMethod::Rolling,
            Some(false) => RestartMethod::Blocking,
        },
        ..defaults
    }
}

/// Reports keys that have no effect in an application pool.
fn without_effect(text: &PoolText, report: &mut Report<'_>) {
    let draft = &text.draft;
    let remedy = "leave it out: the keys of [pool.NAME.applications] set the number of instances";
    let remedy = remedy.replace("NAME", &text.name);
    let problem = "it is not for routing = \"application\"";
    report.refuse(&draft.pm, problem, &remedy);
    report.refuse(&draft.process_idle_timeout, problem, &remedy);
    report.refuse(&draft.memory_limit, problem, &remedy);
    report.refuse(&draft.max_children, problem, &remedy);
    report.refuse(
        &draft.wait_for_cpu,
        problem,
        "leave it out: `concurrency` sets how many requests an application handles at once",
    );
    for field in [
        &draft.start_servers,
        &draft.min_spare_servers,
        &draft.max_spare_servers,
        &draft.max_spawn_rate,
        &draft.max_children_most,
        &draft.max_requests,
        &draft.max_requests_jitter,
    ] {
        report.refuse(field, problem, &remedy);
    }
    let elsewhere = format!("write it into [pool.{}.applications]", text.name);
    report.refuse(&draft.stop_timeout, problem, &elsewhere);
    report.refuse(&draft.max_request_queue_time, problem, &elsewhere);
    for field in [&draft.chroot, &draft.status_listen] {
        report.refuse(field, problem, "leave it out");
    }
    let problem = "an application pool finds the application of a request by its FastCGI parameters, and HTTP \
        has none";
    let remedy = "leave it out, and give the application that needs it its own pool";
    report.refuse(&draft.http_listen, problem, remedy);
}

fn root_parameter(field: &Field<Text>, report: &mut Report<'_>) -> String {
    let Some(written) = field.written() else {
        return DEFAULT_ROOT_PARAMETER.to_owned();
    };
    let name = &written.value.0;
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_fit) {
        let problem = format!("{} can't be the name of a parameter", quoted(name));
        report.rule(written, problem, "use letters, digits and _");
    }
    name.clone()
}

fn user(field: &Field<Text>, report: &mut WorldReport<'_>) -> Option<String> {
    let written = field.written()?;
    if !report.world.is_root() {
        report.ignored_without_root(field);
        return None;
    }
    let name = &written.value.0;
    match report.world.entry(name) {
        None => {
            let problem = format!("there is no user {}", quoted(name));
            report.rule(written, problem, "name an existing user");
        }
        Some(ids) if ids.uid == 0 => {
            let problem = format!("{} is root", quoted(name));
            report.rule(written, problem, "name another user");
        }
        Some(_) => {}
    }
    Some(name.clone())
}

/// An application belongs to at most one group.
fn groups(draft: &ApplicationsDraft, report: &mut Report<'_>) -> BTreeMap<String, Vec<PathBuf>> {
    let mut groups: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut count = 0;
    for entry in &draft.groups {
        let name = entry.name.join(".");
        let roots: Vec<PathBuf> = entry.value.0.iter().map(PathBuf::from).collect();
        count += roots.len();
        let is_fit = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_plain = |root: &&PathBuf| {
            let up = root.components().any(|part| part == Component::ParentDir);
            root.is_absolute() && !up
        };
        let elsewhere = |root: &&PathBuf| groups.values().flatten().any(|other| other == *root);
        let twice = |(at, root): &(usize, &PathBuf)| roots[..*at].contains(root);
        let wrong = if name.is_empty() || !name.chars().all(is_fit) {
            let problem = format!("{} can't be the name of a group", quoted(&name));
            Some((problem, "use letters, digits, -, _ and ."))
        } else if roots.is_empty() {
            Some((
                "it is empty".to_owned(),
                "give the root of at least one application, or leave it out",
            ))
        } else if count > MOST_MEMBERS {
            let problem = format!("there are more than {MOST_MEMBERS} applications in groups");
            Some((problem, "give fewer"))
        } else if let Some(root) = roots.iter().find(|root| !is_plain(root)) {
            let problem = format!("{} is no application's root", quoted(&root.display().to_string()));
            Some((problem, "give an absolute path without .."))
        } else if let Some((_, root)) = roots.iter().enumerate().find(twice) {
            let problem = format!("{} is there twice", quoted(&root.display().to_string()));
            Some((problem, "give each application once"))
        } else {
            roots.iter().find(elsewhere).map(|root| {
                let problem = format!("{} is in another group", quoted(&root.display().to_string()));
                (problem, "give each application in one group")
            })
        };
        match wrong {
            Some((problem, remedy)) => {
                report.rule_entry(entry, problem, remedy);
            }
            None => drop(groups.insert(name, roots)),
        }
    }
    groups
}

fn number(field: &Field<Whole>, most: i64, report: &mut Report<'_>) -> Option<u32> {
    report.range(field, 0, most)
}

fn count(field: &Field<Whole>, most: i64, report: &mut Report<'_>) -> Option<NonZeroU32> {
    report.range(field, 1, most).and_then(NonZeroU32::new)
}

/// A number with 0 meaning no limit.
fn positive_count(field: &Field<Whole>, report: &mut Report<'_>) -> Option<NonZeroU32> {
    number(field, MOST, report).and_then(NonZeroU32::new)
}
