//! Resolves one `[pool.NAME]`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::global::{new_file, priority, rlimit_files};
use super::{application, applications, confine, lanes, listen, manager, overload, release, worker_script};
use crate::access::{AccessLog, DEFAULT_FORMAT, Format, parse_format};
use crate::draft::{ApplicationDraft, ApplicationsDraft, PoolDraft, PoolText};
use crate::error::{Kind, Location};
use crate::flat_keys::{Field, FlatKeys, Written};
use crate::known::Section;
use crate::model::{
    Account, DEFAULT_STOP_TIMEOUT, Environment, Limits, Listen, Load, Logs, Pages, Pool, ProcessSetup,
    ReloadWhen, Replacement, Retirement, Serving,
};
use crate::report::{Report, WorldReport};
use crate::units::{Text, Time};
use crate::value::quoted;
use crate::world::id_number;
use forkyard_protocol::runtimes::{Kind as Runtime, RUNTIMES};

const TITLE: &str = "forkyard";
const DEFAULT_CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(75);
const DEFAULT_PARAMS_BYTES: u64 = 1 << 20;
const DEFAULT_PARAMS_COUNT: usize = 10_000;
/// Web servers send at least the minimum; the maximum protects memory.
const PARAMS_BYTES: (u64, u64) = (1 << 12, 1 << 30);
const PARAMS_COUNT: (i64, i64) = (32, 10_000_000);

pub(super) fn read(
    name: String,
    location: Location,
    mut flat_keys: FlatKeys<'_>,
    report: &mut Report<'_>,
) -> PoolText {
    let draft = PoolDraft::read(&mut flat_keys, report);
    let applications_location = flat_keys.first_location("applications");
    let applications = Box::new(ApplicationsDraft::read(&mut flat_keys, report));
    let application = application::read(&draft, &mut flat_keys, report);
    // With an unknown runtime the keys are unknown too; one error is enough.
    if matches!(application, ApplicationDraft::Wrong) {
        flat_keys.discard("application");
    }
    flat_keys.finish(Section::Pool, report);
    PoolText {
        name,
        location,
        draft,
        application,
        applications,
        applications_location,
    }
}

/// Resolves a pool and checks the rules about itself. `memory`: available for `max_children = "auto"`.
pub(super) fn resolve(
    text: &PoolText,
    allow_root: bool,
    memory: Option<u64>,
    report: &mut WorldReport<'_>,
) -> Option<Pool> {
    let draft = &text.draft;
    name(text, report);
    let listen = listen::resolve(text, report);
    let account = account(text, allow_root, report);
    let applications = applications::resolve(text, report);
    let pm = match &applications {
        Some(Some(applications)) => Some(applications::manager(applications)),
        _ if text.is_routed() => None,
        _ => manager::resolve(text, memory, report),
    };
    let is_ordinary = applications == Some(None);
    let has_autopilot = is_ordinary && draft.max_children.is_auto();
    let application = application::resolve(text, report);
    let lanes = match (&application, pm) {
        (Some(application), Some(pm)) => lanes::resolve(text, application, pm.max_children(), report),
        _ => None,
    };
    let extra = lanes.as_ref().map_or(0, |lanes| lanes.extra);
    let pm = pm.map(|pm| if has_autopilot { pm } else { pm.with_more(extra) });
    let release = match &application {
        Some(application) => release::resolve(text, application, report),
        None => {
            release::report_missing(text, report);
            None
        }
    };
    positive(&draft.push_timeout, super::jobs::DEFAULT_PUSH_TIMEOUT, report);
    Some(Pool {
        name: text.name.clone(),
        title: TITLE.to_owned(),
        account,
        setup: setup(text, report),
        environment: Environment {
            clear_env: draft.clear_env.or(true),
            env: environment(draft, report),
            own_env: Vec::new(),
            env_file: super::slow::env_file(text, report),
        },
        confine: confine::resolve(text, report),
        serving: Serving {
            client_timeout: positive(&draft.client_timeout, DEFAULT_CLIENT_TIMEOUT, report),
            keepalive_timeout: positive(&draft.keepalive_timeout, DEFAULT_KEEPALIVE_TIMEOUT, report),
            request_terminate_timeout: draft.request_terminate_timeout.above_zero(),
            request_terminate_timeout_track_finished: draft
                .request_terminate_timeout_track_finished
                .or(false),
            wait_for_cpu: draft.wait_for_cpu.or(true),
            limits: limits(draft, report),
        },
        load: Load {
            has_autopilot,
            shares: confine::shares(draft, report),
            overload: overload::overload(draft, report),
            lanes,
        },
        release,
        retirement: retirement(text, report),
        replacement: Replacement {
            reload: draft.reload.or(ReloadWhen::Changed),
            stop_timeout: match &applications {
                Some(Some(applications)) => applications.options.stop_timeout,
                _ => positive(&draft.stop_timeout, DEFAULT_STOP_TIMEOUT, report),
            },
            drain_timeout: None,
        },
        pages: pages(text, listen.as_ref(), report),
        http_listen: (listen.as_ref())
            .and_then(|listen| listen::http(text, listen, report))
            .map(Box::new),
        logs: logs(text, report),
        application: application?,
        applications: applications?.map(Box::new),
        listen: listen?,
        pm: pm?,
    })
}

fn setup(text: &PoolText, report: &mut WorldReport<'_>) -> ProcessSetup {
    let draft = &text.draft;
    let (chdir, chroot) = directories(draft, report);
    ProcessSetup {
        chdir,
        chroot,
        rlimit_files: worker_files(text, report),
        rlimit_core: draft.rlimit_core.get(),
        rlimit_data: None,
        process_priority: priority(&draft.process_priority, report),
        process_dumpable: draft.process_dumpable.or(false),
        no_new_privs: draft.no_new_privs.or(false),
        origin: None,
    }
}

/// The workers of an application pool have different runtimes.
fn worker_files(text: &PoolText, report: &mut Report<'_>) -> Option<u64> {
    let runtime = text.runtime().filter(|_| !text.is_routed()).map(Runtime::traits);
    let many = RUNTIMES.iter().filter(|runtime| runtime.is_for_many);
    let least = many.map(|runtime| runtime.least_descriptors).min();
    let least = runtime.map_or(least, |runtime| Some(runtime.least_descriptors));
    let whose = runtime.map_or_else(
        || "a worker".to_owned(),
        |runtime| format!("a worker of {}", runtime.title),
    );
    rlimit_files(&text.draft.rlimit_files, least.unwrap_or(0), &whose, report)
}

fn retirement(text: &PoolText, report: &mut WorldReport<'_>) -> Retirement {
    let draft = &text.draft;
    let most = (report.range(&draft.max_requests, 0, i64::MAX)).filter(|most| *most > 0);
    let jitter = report.range(&draft.max_requests_jitter, 0, i64::MAX).unwrap_or(0);
    let (max_requests, max_requests_jitter) = worker_script::requests(text, most, jitter, report);
    let memory_limit = memory_limit(text, report);
    Retirement {
        max_requests,
        max_requests_jitter,
        memory_limit: worker_script::memory(text, memory_limit, report),
        told_memory_limit: None,
    }
}

fn pages(text: &PoolText, listen: Option<&Listen>, report: &mut WorldReport<'_>) -> Pages {
    let draft = &text.draft;
    let (status_path, ping_path) = uris(draft, report);
    Pages {
        status_path,
        status_listen: listen
            .and_then(|listen| listen::status(text, listen, report))
            .map(Box::new),
        ping_path,
        ping_response: ping_response(draft, report),
        friendly_error_pages: draft.friendly_error_pages.or(false),
    }
}

fn logs(text: &PoolText, report: &mut WorldReport<'_>) -> Logs {
    let draft = &text.draft;
    // As in php-fpm, a PHP pool's script errors go to the web server.
    let catches = text.is_routed() || !matches!(text.application, ApplicationDraft::Php(_));
    Logs {
        access: access(draft, report),
        slow_log: super::slow::resolve(draft, report),
        app_log: super::slow::app_log(text, report),
        catch_workers_output: draft.catch_workers_output.or(catches) || !draft.app_log.is_absent(),
        decorate_workers_output: draft.decorate_workers_output.or(true),
    }
}

/// forkyard can't replace a program that it didn't start.
fn memory_limit(text: &PoolText, report: &mut Report<'_>) -> Option<u64> {
    let field = &text.draft.memory_limit;
    if matches!(&text.application, ApplicationDraft::Http(http) if !http.address.is_absent()) {
        let problem = "a program that forkyard does not start is not replaced for it";
        report.refuse(
            field,
            problem,
            "leave it out, or have forkyard start the program (application.start_command)",
        );
    }
    field.get().filter(|limit| *limit > 0)
}

pub fn can_be_named(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(char::is_control)
}

fn name(text: &PoolText, report: &mut Report<'_>) {
    if !can_be_named(&text.name) {
        let problem = format!("{} can't be the name of a pool", quoted(&text.name));
        let remedy = "give it at least one character and no control characters";
        report.error(&text.location, "name", Kind::rule(problem, remedy));
    }
}

pub(super) fn positive(field: &Field<Time>, default: Duration, report: &mut Report<'_>) -> Duration {
    if field.get().is_some_and(|time| time.is_zero()) {
        let remedy = "give a duration above zero, for example \"10s\"";
        report.refuse(field, "0 is too short", remedy);
        return default;
    }
    field.or(default)
}

fn account(text: &PoolText, allow_root: bool, report: &mut WorldReport<'_>) -> Account {
    let PoolDraft { user, group, .. } = &text.draft;
    if !report.world.is_root() {
        report.ignored_without_root(user);
        report.ignored_without_root(group);
        return Account::default();
    }
    if user.is_absent() && !allow_root && !text.is_routed() {
        report.missing(
            &text.location,
            "user",
            "user = \"www-data\", or another user for its workers; to run them as root, allow_root = true in [global]",
        );
    }
    if let Some(written) = group.written() {
        let gid = group_id(written, report);
        refuse_root(written, gid.filter(|_| !allow_root), "group", report);
    }
    if let Some(written) = user.written() {
        let name = &written.value.0;
        let number = id_number(name);
        let ids = report.world.entry(name);
        match (ids, number) {
            (None, None) => {
                known_id(written, "user", name, None, report);
            }
            (None, Some(_)) if group.is_absent() => report.rule(
                written,
                format!("user id {name} has no entry to take its group from"),
                "set group as well",
            ),
            _ => {
                let uid = ids.map(|ids| ids.uid).or(number);
                refuse_root(written, uid.filter(|_| !allow_root), "user", report);
            }
        }
        // The group of the user's entry is used.
        if !allow_root && group.is_absent() {
            let entry = ids.filter(|ids| ids.uid != 0);
            refuse_root(written, entry.map(|ids| ids.gid), "group", report);
        }
    }
    Account {
        user: user.get(),
        group: group.get(),
    }
}

fn refuse_root(written: &Written<Text>, id: Option<u32>, kind: &str, report: &mut Report<'_>) {
    if id == Some(0) {
        let problem = format!(
            "{} makes root the {kind} of the workers",
            quoted(&written.value.0)
        );
        report.rule(
            written,
            problem,
            "name another one, or write allow_root = true in [global]",
        );
    }
}

pub(super) fn group_id(written: &Written<Text>, report: &mut WorldReport<'_>) -> Option<u32> {
    let name = &written.value.0;
    known_id(written, "group", name, report.world.gid(name), report)
}

/// Reports a user or group (`kind`) that has no id.
pub(super) fn known_id<T>(
    written: &Written<T>,
    kind: &str,
    name: &str,
    id: Option<u32>,
    report: &mut Report<'_>,
) -> Option<u32> {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if id.is_none() && is_number {
        let problem = format!("{} is no id of a {kind}", quoted(name));
        let remedy = format!(
            "give a number from 0 to {}, or name an existing {kind}",
            u32::MAX - 1
        );
        report.rule(written, problem, remedy);
    } else if id.is_none() {
        let problem = format!("there is no {kind} {}", quoted(name));
        let remedy = format!("name an existing {kind}, or give a numeric id");
        report.rule(written, problem, remedy);
    }
    id
}

fn access(draft: &PoolDraft, report: &mut WorldReport<'_>) -> Option<AccessLog> {
    let mut suppress_paths = Vec::new();
    if let Some(written) = draft.access_suppress_path.written() {
        if let Some(path) = written.value.0.iter().find(|path| !path.starts_with('/')) {
            let problem = format!("{} does not start with /", quoted(path));
            report.rule(written, problem, "give the URIs as the status page shows them");
        }
        suppress_paths.clone_from(&written.value.0);
    }
    let format = match draft.access_format.written() {
        Some(written) => parse_format(&written.value.0).unwrap_or_else(|problem| {
            report.rule(
                written,
                problem.to_string(),
                "see docs/reference/logging.md for the list",
            );
            Format::default()
        }),
        None => parse_format(DEFAULT_FORMAT).unwrap_or_default(),
    };
    let written = draft.access_log.written()?;
    let path = absolute(written, report)?;
    new_file(written, &path, report);
    Some(AccessLog {
        path,
        format,
        suppress_paths,
    })
}

fn limits(draft: &PoolDraft, report: &mut Report<'_>) -> Limits {
    let bytes = draft.params_bytes.or(DEFAULT_PARAMS_BYTES);
    if !(PARAMS_BYTES.0..=PARAMS_BYTES.1).contains(&bytes) {
        let problem = format!("{bytes} bytes is out of range");
        report.refuse(&draft.params_bytes, &problem, "give a size from \"4K\" to \"1G\"");
    }
    let count = report.range(&draft.params_count, PARAMS_COUNT.0, PARAMS_COUNT.1);
    Limits {
        params_bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        params_count: count.unwrap_or(DEFAULT_PARAMS_COUNT),
    }
}

fn directories(draft: &PoolDraft, report: &mut WorldReport<'_>) -> (Option<PathBuf>, Option<PathBuf>) {
    let mut chroot = None;
    if let Some(written) = draft.chroot.written() {
        chroot = absolute(written, report);
        if chroot.is_some() && !report.world.is_root() {
            report.ignored_without_root(&draft.chroot);
            chroot = None;
        }
        if let Some(path) = &chroot {
            existing(written, path, report);
        }
    }
    let written = draft.chdir.written();
    let chdir = written.and_then(|written| absolute(written, report));
    if let (Some(path), Some(written)) = (&chdir, written) {
        match &chroot {
            None => existing(written, path, report),
            Some(root) => {
                let inside = root.join(path.strip_prefix("/").unwrap_or(path));
                if !report.world.is_dir(&inside) {
                    let inside = quoted(&inside.to_string_lossy());
                    let problem =
                        format!("{inside}, which it is in the chroot, is not an existing directory");
                    report.rule(written, problem, "give the path as seen from inside the chroot");
                }
            }
        }
    }
    (chdir, chroot)
}

pub(super) fn absolute(written: &Written<Text>, report: &mut Report<'_>) -> Option<PathBuf> {
    let path = Path::new(&written.value.0);
    if path.is_absolute() || report.is_php_fpm() {
        return Some(path.to_owned());
    }
    report.rule(
        written,
        format!("{} is not an absolute path", quoted(&written.value.0)),
        "start it with /",
    );
    None
}

pub(super) fn existing(written: &Written<Text>, path: &Path, report: &mut WorldReport<'_>) {
    if !report.world.is_dir(path) {
        let problem = format!("{} is not an existing directory", quoted(&path.to_string_lossy()));
        report.rule(written, problem, "make it, or give another path");
    }
}

fn uris(draft: &PoolDraft, report: &mut Report<'_>) -> (Option<String>, Option<String>) {
    // A separate status address may use "/".
    let least = if draft.status_listen.is_absent() { 2 } else { 1 };
    let status = uri(&draft.status_path, least, report);
    let ping = uri(&draft.ping_path, 2, report);
    if let (Some(written), true) = (draft.ping_path.written(), ping.is_some() && ping == status) {
        report.rule(written, "it is the same as status_path", "give another path");
    }
    (status, ping)
}

fn uri(field: &Field<Text>, least: usize, report: &mut Report<'_>) -> Option<String> {
    let written = field.written()?;
    let text = &written.value.0;
    let problem = if report.is_php_fpm() {
        return Some(text.clone());
    } else if !text.starts_with('/') {
        "does not start with /"
    } else if text.len() < least {
        "is too short"
    } else if !text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/_-.~".contains(&byte))
    {
        "has a character that is not allowed"
    } else {
        return Some(text.clone());
    };
    let remedy = "write / followed by letters, digits and any of / _ - . ~";
    report.rule(written, format!("{} {problem}", quoted(text)), remedy);
    None
}

fn ping_response(draft: &PoolDraft, report: &mut Report<'_>) -> String {
    let response = draft.ping_response.or("pong".to_owned());
    if response.is_empty() {
        report.refuse(&draft.ping_response, "it is empty", "give at least one character");
    }
    response
}

/// The workers' environment. A value `$NAME` comes from this process's environment.
fn environment(draft: &PoolDraft, report: &mut WorldReport<'_>) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for entry in &draft.env {
        let name = entry.name.join(".");
        if (name.is_empty() || name.contains(['=', '\0'])) && !report.is_php_fpm() {
            let problem = format!("{} can't be the name of a variable", quoted(&name));
            report.rule_entry(entry, problem, "use letters, digits and _");
            continue;
        }
        let value = match entry.value.0.strip_prefix('$') {
            Some(source) => report.world.env(source).unwrap_or_default(),
            None => entry.value.0.clone(),
        };
        variables.push((name, value));
    }
    variables
}
