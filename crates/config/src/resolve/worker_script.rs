//! Resolves a PHP application that boots once.

use std::path::Path;
use std::time::Duration;

use super::application::file;
use super::pool::{absolute, positive};
use crate::PathPattern;
use crate::application::{BootConnections, Isolation, Preloading, WorkerMode, WorkerScript};
use crate::draft::{ApplicationDraft, PhpDraft, PoolText};
use crate::report::{Report, WorldReport};
use crate::value::quoted;

const DEFAULT_REQUESTS: u64 = 500;
/// A rewound worker doesn't age; this is a precaution.
const SNAPSHOT_REQUESTS: u64 = 10_000;
/// The jitter's part of the requests, so that workers don't all end at once.
const JITTER_PART: u64 = 10;
const DEFAULT_MEMORY: u64 = 128 << 20;
const DEFAULT_BOOT_TIMEOUT: Duration = Duration::from_secs(30);
const LEAVE_OUT: &str = "leave it out, or write worker = \"/path/of/the/script.php\"";

pub(super) fn resolve(
    text: &PoolText,
    draft: &PhpDraft,
    report: &mut WorldReport<'_>,
) -> Option<WorkerScript> {
    let Some(written) = draft.worker.written() else {
        refuse_without_worker(draft, report);
        return None;
    };
    if text.is_routed() {
        let problem = "with routing = \"application\" each request names its application";
        report.rule(written, problem, "give the application its own pool");
        return None;
    }
    refuse_with_worker(draft, report);
    let mode = draft.worker_mode.get();
    refuse_of_other_mode(draft, mode, report);
    let write = "worker_mode = \"loop\" or \"snapshot\" in the same table";
    report.require(
        &draft.worker_mode,
        &written.location,
        "application.worker_mode",
        write,
    );
    Some(WorkerScript {
        path: match text.draft.chroot.is_absent() {
            true => file(&draft.worker, report)?,
            false => absolute(written, report)?,
        },
        mode: mode?,
        isolation: draft.isolation.or(Isolation::Auto),
        warm_up_requests: warm_up_requests(draft, report),
        warm_up_server: warm_up_server(draft, report),
        boot_connections: draft.boot_connections.or(BootConnections::Cut),
        watch: watch(text, draft, report),
    })
}

fn refuse_without_worker(draft: &PhpDraft, report: &mut Report<'_>) {
    let problem = "there is no worker script that it could be about";
    report.refuse(&draft.worker_mode, problem, LEAVE_OUT);
    report.refuse(&draft.isolation, problem, LEAVE_OUT);
    report.refuse(&draft.loop_requests, problem, LEAVE_OUT);
    report.refuse(&draft.loop_memory, problem, LEAVE_OUT);
    report.refuse(&draft.boot_timeout, problem, LEAVE_OUT);
    report.refuse(&draft.boot_connections, problem, LEAVE_OUT);
    report.refuse(&draft.warm_up_requests, problem, LEAVE_OUT);
    report.refuse(&draft.watch, problem, LEAVE_OUT);
    if let Some(entry) = draft.warm_up_server.first() {
        report.rule_entry(entry, problem, LEAVE_OUT);
    }
}

fn refuse_with_worker(draft: &PhpDraft, report: &mut Report<'_>) {
    let is_other = |choice: Preloading| choice != Preloading::Own;
    if draft.preloader.get().is_some_and(is_other) {
        let problem = "a worker script boots in a preloader of its pool's own";
        report.refuse(
            &draft.preloader,
            problem,
            "leave it out, or write preloader = \"own\"",
        );
    }
    let problem = "with worker the script is the only one that is run";
    report.refuse(&draft.script_root, problem, "leave it out");
    report.refuse(&draft.limit_extensions, problem, "leave it out");
    let problem = "the boot compiles the files that the application needs";
    report.refuse(&draft.warm_up, problem, "write warm_up_requests instead");
    report.refuse(&draft.warm_up_time, problem, "write warm_up_requests instead");
    let problem = "boot_timeout is about PHP's start as well";
    report.refuse(&draft.start_timeout, problem, "write boot_timeout instead");
}

fn refuse_of_other_mode(draft: &PhpDraft, mode: Option<WorkerMode>, report: &mut Report<'_>) {
    match mode {
        Some(WorkerMode::Loop) => {
            let problem = "with worker_mode = \"loop\" a worker keeps its state between requests";
            report.refuse(
                &draft.isolation,
                problem,
                "leave it out, or write worker_mode = \"snapshot\"",
            );
        }
        Some(WorkerMode::Snapshot) => {
            let problem = "with worker_mode = \"snapshot\" no request leaves anything";
            report.refuse(&draft.loop_requests, problem, "write max_requests, if anything");
            report.refuse(&draft.loop_memory, problem, "write memory_limit, if anything");
        }
        None => {}
    }
}

fn warm_up_requests(draft: &PhpDraft, report: &mut Report<'_>) -> Vec<String> {
    let Some(written) = draft.warm_up_requests.written() else {
        return Vec::new();
    };
    for path in &written.value.0 {
        if !path.starts_with('/') || path.contains([' ', '\r', '\n', '#']) {
            let problem = format!("{} is not the path of a request", quoted(path));
            report.rule(
                written,
                problem,
                "write it as in a URL, for example \"/\" or \"/login?a=b\"",
            );
        }
    }
    written.value.0.clone()
}

fn watch(text: &PoolText, draft: &PhpDraft, report: &mut WorldReport<'_>) -> Vec<PathPattern> {
    let Some(written) = draft.watch.written() else {
        return Vec::new();
    };
    let mut patterns = Vec::new();
    for path in &written.value.0 {
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            let problem = format!("{} is not an absolute path", quoted(path));
            report.rule(
                written,
                problem,
                "start it with /, and without \"..\", for example \"/srv/app/src/**/*.php\"",
            );
            continue;
        }
        let pattern = PathPattern::from(path.clone());
        if pattern.is_plain() && text.draft.chroot.is_absent() && report.world.is_dir(Path::new(path)) {
            let below = path.trim_end_matches('/');
            let remedy = format!("name the files in it, for example \"{below}/**/*.php\"");
            report.rule(written, format!("{} is a directory", quoted(path)), remedy);
            continue;
        }
        patterns.push(pattern);
    }
    patterns
}

fn warm_up_server(draft: &PhpDraft, report: &mut Report<'_>) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for entry in &draft.warm_up_server {
        let name = entry.name.join(".");
        let is_fit = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_fit) {
            let problem = format!("{} can't be the name of a variable", quoted(&name));
            report.rule_entry(entry, problem, "write it as in $_SERVER, for example HTTP_HOST");
            continue;
        }
        variables.push((name, entry.value.0.clone()));
    }
    variables
}

fn of_worker_script(text: &PoolText) -> Option<&PhpDraft> {
    match &text.application {
        ApplicationDraft::Php(draft) if !draft.worker.is_absent() => Some(draft),
        _ => None,
    }
}

pub(super) fn boot_timeout(draft: &PhpDraft, report: &mut Report<'_>) -> Duration {
    positive(&draft.boot_timeout, DEFAULT_BOOT_TIMEOUT, report)
}

/// Requests per worker and their jitter. Worker script keys override the pool's.
pub(super) fn requests(
    text: &PoolText,
    most: Option<u64>,
    jitter: u64,
    report: &mut Report<'_>,
) -> (Option<u64>, u64) {
    let Some(draft) = of_worker_script(text) else {
        return (most, jitter);
    };
    match draft.worker_mode.get() {
        Some(WorkerMode::Snapshot) if text.draft.max_requests.is_absent() => {
            return (Some(SNAPSHOT_REQUESTS), SNAPSHOT_REQUESTS / JITTER_PART);
        }
        Some(WorkerMode::Snapshot) => return (most, jitter),
        Some(WorkerMode::Loop) | None => {}
    }
    if !draft.loop_requests.is_absent() && !text.draft.max_requests.is_absent() {
        report.refuse(
            &draft.loop_requests,
            "max_requests already does this",
            "leave out one of the two",
        );
    }
    let own = report.range(&draft.loop_requests, 0, i64::MAX);
    let most = match (own, text.draft.max_requests.is_absent()) {
        (Some(own), _) => Some(own).filter(|most| *most > 0),
        (None, true) => Some(DEFAULT_REQUESTS),
        (None, false) => most,
    };
    let jitter = match text.draft.max_requests_jitter.is_absent() {
        true => most.unwrap_or(0) / JITTER_PART,
        false => jitter,
    };
    (most, jitter)
}

/// Memory per worker. The worker script's key overrides the pool's.
pub(super) fn memory(text: &PoolText, limit: Option<u64>, report: &mut Report<'_>) -> Option<u64> {
    let of_loop = |draft: &&PhpDraft| draft.worker_mode.get() != Some(WorkerMode::Snapshot);
    let Some(draft) = of_worker_script(text).filter(of_loop) else {
        return limit;
    };
    if !draft.loop_memory.is_absent() && !text.draft.memory_limit.is_absent() {
        report.refuse(
            &draft.loop_memory,
            "memory_limit already does this",
            "leave out one of the two",
        );
    }
    match (draft.loop_memory.get(), text.draft.memory_limit.is_absent()) {
        (Some(own), _) => Some(own).filter(|limit| *limit > 0),
        (None, true) => Some(DEFAULT_MEMORY),
        (None, false) => limit,
    }
}
