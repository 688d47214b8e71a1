//! Resolves HTTP server programs.

use super::application::{DEFAULT_PRELOADER_IDLE_TIMEOUT, file};
use super::listen::address;
use super::node;
use super::pool::positive;
use crate::application::{Application, Http, Listens, Program, ResourceLimit};
use crate::draft::{HttpDraft, PoolText};
use crate::error::Kind;
use crate::flat_keys::Field;
use crate::report::{Report, WorldReport};
use crate::units::Flag;
use crate::value::quoted;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The spawning kit's default.
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(90);
const DEFAULT_APP_ENV: &str = "production";
const MOST_INSTANCES: i64 = 256;
const LIMITS: &[&str] = &[
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss",
    "stack",
];

pub(super) fn http(text: &PoolText, draft: &HttpDraft, report: &mut WorldReport<'_>) -> Option<Application> {
    if let (Some(_), Some(command)) = (draft.address.written(), draft.start_command.written()) {
        let remedy = "keep start_command if forkyard starts the program, otherwise address";
        report.rule(command, "the program has an address already", remedy);
        return None;
    }
    if let Some(written) = draft.start_command.written() {
        let command = written.value.0.clone();
        if command.trim().is_empty() {
            report.rule(written, "it is empty", "write what starts the program");
        }
        return program(text, draft, Some(command), report).map(Application::Program);
    }
    if let Some(written) = draft.address.written() {
        needs_a_command(draft, report);
        return Some(Application::Http(Http {
            address: address(written, report)?,
        }));
    }
    if draft.address.is_absent() && draft.start_command.is_absent() {
        let write = "address = \"127.0.0.1:3000\", or the path of the program's socket; or start_command and \
            root, if forkyard starts the program";
        report.missing(text.runtime_location(), "application.address", write);
    }
    None
}

pub(super) fn node(text: &PoolText, draft: &HttpDraft, report: &mut WorldReport<'_>) -> Option<Program> {
    if let Some(written) = draft.address.written() {
        let remedy = "leave it out; with runtime = \"http\" it is where a program listens that forkyard does not start";
        report.rule(
            written,
            "forkyard starts the program and chooses where it listens",
            remedy,
        );
    }
    let command = match draft.start_command.written() {
        Some(written) => Some(written.value.0.clone()),
        // Each release has its own.
        None if is_in_release(text, draft) => Some(String::new()),
        None => {
            let root = draft.root.written().map(|root| PathBuf::from(&root.value.0));
            let root = root.filter(|root| draft.start_command.is_absent() && report.world.is_dir(root));
            root.and_then(|root| match node::start_command(&root, &report.world) {
                Ok(command) => Some(command),
                Err(problem) => {
                    let written = draft.root.written();
                    let location = written
                        .map_or(text.runtime_location(), |written| &written.location)
                        .clone();
                    let kind = Kind::rule(problem.to_string(), "write start_command = \"node FILE\"");
                    report.error(&location, "application.root", kind);
                    None
                }
            })
        }
    };
    let found = program(text, draft, command, report)?;
    Some(Program {
        listens: match found.listens {
            Listens::Port => Listens::Node,
            said => said,
        },
        ..found
    })
}

/// Whether the application is in a release, so that its files are read when that serves.
fn is_in_release(text: &PoolText, draft: &HttpDraft) -> bool {
    let link = text.draft.release.written().map(|link| Path::new(&link.value.0));
    let root = draft.root.written().map(|root| Path::new(&root.value.0));
    link.zip(root).is_some_and(|(link, root)| root.starts_with(link))
}

fn needs_a_command(draft: &HttpDraft, report: &mut Report<'_>) {
    let problem = "it is for a program that forkyard starts";
    let remedy = "leave it out, or write start_command instead of address";
    report.refuse(&draft.root, problem, remedy);
    report.refuse(&draft.handshake, problem, remedy);
    report.refuse(&draft.instances, problem, remedy);
    report.refuse(&draft.app_env, problem, remedy);
    report.refuse(&draft.load_shell_envvars, problem, remedy);
    report.refuse(&draft.umask, problem, remedy);
    report.refuse(&draft.preloader_idle_timeout, problem, remedy);
    report.refuse(&draft.start_timeout, problem, remedy);
    if let Some(entry) = draft.rlimits.first() {
        report.rule_entry(entry, problem, remedy);
    }
}

fn program(
    text: &PoolText,
    draft: &HttpDraft,
    command: Option<String>,
    report: &mut WorldReport<'_>,
) -> Option<Program> {
    let write = "root = \"/srv/app\", the directory of the application";
    report.require(&draft.root, text.runtime_location(), "application.root", write);
    let root = file(&draft.root, report);
    if let (Some(root), Some(written)) = (&root, draft.root.written()) {
        if !report.world.is_dir(root) {
            let problem = format!("{} is not a directory", quoted(&written.value.0));
            report.rule(written, problem, "give the directory of the application");
        }
    }
    let listens = draft.handshake.or(Listens::Port);
    settings_of_workers(text, listens, report);
    let app_env = draft.app_env.or(DEFAULT_APP_ENV.to_owned());
    if let (Some(written), true) = (draft.app_env.written(), app_env.is_empty()) {
        report.rule(written, "it is empty", "write \"production\", or leave it out");
    }
    Some(Program {
        root: root?,
        start_command: command?,
        listens,
        instances: (report.range(&draft.instances, 1, MOST_INSTANCES)).unwrap_or(1),
        app_env,
        load_shell_envvars: draft.load_shell_envvars.or(false),
        rlimits: rlimits(draft, report),
        umask: draft.umask.get(),
        start_timeout: positive(&draft.start_timeout, DEFAULT_START_TIMEOUT, report),
        preloader_idle_timeout: draft.preloader_idle_timeout.or(DEFAULT_PRELOADER_IDLE_TIMEOUT),
    })
}

/// Rejects worker settings that can't be applied to the program. Starting with less confinement than configured would
/// be worse.
fn settings_of_workers(text: &PoolText, listens: Listens, report: &mut Report<'_>) {
    fn refuse<T>(field: &Field<T>, report: &mut Report<'_>) {
        let problem = "it is not available for a program that forkyard starts";
        let remedy = "leave it out, or start the program elsewhere and write its address";
        report.refuse(field, problem, remedy);
    }
    fn refuse_flag(field: &Field<Flag>, report: &mut Report<'_>) {
        if field.or(false) {
            refuse(field, report);
        }
    }
    let pool = &text.draft;
    refuse(&pool.chroot, report);
    refuse(&pool.process_priority, report);
    refuse(&pool.apparmor_hat, report);
    refuse(&pool.confine_read, report);
    refuse(&pool.confine_write, report);
    refuse_flag(&pool.confine_deny_system_calls, report);
    refuse_flag(&pool.confine_private_tmp, report);
    refuse(&pool.cgroup_parent, report);
    refuse(&pool.cpu_weight, report);
    refuse(&pool.memory_max, report);
    let (name, key) = match listens {
        Listens::Handshake => return,
        Listens::Port | Listens::Node => ("PORT", "env.PORT"),
        Listens::Socket => ("SOCKET", "env.SOCKET"),
    };
    if let Some(entry) = pool.env.iter().find(|entry| entry.name == [name]) {
        let thing = name.to_lowercase();
        let problem = format!("forkyard chooses the {thing} and passes it in {name}");
        report.error(&entry.location, key, Kind::rule(problem, "leave it out"));
    }
}

fn rlimits(draft: &HttpDraft, report: &mut Report<'_>) -> Vec<ResourceLimit> {
    let mut limits = Vec::new();
    for entry in &draft.rlimits {
        let name = entry.name.join(".");
        if !LIMITS.contains(&name.as_str()) {
            let problem = format!("{} is no resource limit", quoted(&name));
            let remedy = format!("it can be {}", LIMITS.join(", "));
            report.rule_entry(entry, problem, remedy);
            continue;
        }
        limits.push(ResourceLimit {
            name,
            soft: entry.value.0,
            hard: entry.value.1,
        });
    }
    limits
}
