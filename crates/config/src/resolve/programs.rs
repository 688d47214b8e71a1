//! Resolves applications other than PHP.

use super::application::{DEFAULT_PRELOADER_IDLE_TIMEOUT, file, script_root};
use super::pool::positive;
use crate::application::{
    Cgi, DEFAULT_CONCURRENCY, FastCgi, Interface, MOST_CONCURRENCY, MOST_THREADS, Preload, StartCommand,
    Wrapped, usual_interpreter,
};
use crate::draft::{CgiDraft, FastCgiDraft, PoolText, WrappedDraft};
use crate::flat_keys::Field;
use crate::report::{Report, WorldReport};
use crate::units::Texts;
use crate::value::quoted;
use std::path::Path;
use std::time::Duration;

/// Passenger's default, for large applications.
const DEFAULT_START_TIMEOUT: Duration = Duration::from_secs(90);
/// A page may still save data after its client disconnects.
const DEFAULT_ABORT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn cgi(text: &PoolText, draft: &CgiDraft, report: &mut WorldReport<'_>) -> Option<Cgi> {
    if draft.script.is_absent() && draft.root.is_absent() {
        let write =
            "root = \"/usr/lib/cgi-bin\", below which programs may be run, or script = \"...\", the only one";
        report.missing(text.runtime_location(), "application.root", write);
        return None;
    }
    Some(Cgi {
        script: file(&draft.script, report),
        root: file(&draft.root, report),
        search_arguments: draft.search_arguments.or(false),
        parameters: parameters(&draft.parameters, report),
    })
}

pub(super) fn fastcgi(
    text: &PoolText,
    draft: &FastCgiDraft,
    report: &mut WorldReport<'_>,
) -> Option<FastCgi> {
    Some(FastCgi {
        root: file(&draft.root, report),
        start_timeout: positive(&draft.start_timeout, DEFAULT_START_TIMEOUT, report),
        abort_timeout: draft.abort_timeout.or(DEFAULT_ABORT_TIMEOUT),
        parameters: parameters(&draft.parameters, report),
        script_root: script_root(&draft.script_root, report),
        command: command(text, draft, report)?,
    })
}

/// Parameter names with an optional `*` at the end.
fn parameters(field: &Field<Texts>, report: &mut Report<'_>) -> Vec<String> {
    let Some(written) = field.written() else {
        return Vec::new();
    };
    let is_name = |text: &str| {
        let name = text.strip_suffix('*').unwrap_or(text);
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if let Some(wrong) = written.value.0.iter().find(|text| !is_name(text)) {
        let problem = format!("{} is no parameter's name", quoted(wrong));
        report.rule(
            written,
            problem,
            "write letters, digits and _, with a * at the end for any rest, as in \"GIT_*\"",
        );
    }
    written.value.0.clone()
}

fn command(text: &PoolText, draft: &FastCgiDraft, report: &mut Report<'_>) -> Option<StartCommand> {
    if draft.start_command.is_absent() && draft.program.is_absent() {
        let write = "start_command = \"/usr/bin/php-cgi8.2\", or program = \"...\" with arguments = [...]";
        report.missing(text.runtime_location(), "application.start_command", write);
        return None;
    }
    if let (Some(_), Some(program)) = (draft.start_command.written(), draft.program.written()) {
        report.rule(
            program,
            "start_command already names the program",
            "leave one out",
        );
        return None;
    }
    if let Some(line) = draft.start_command.written() {
        if let Some(arguments) = draft.arguments.written() {
            report.rule(
                arguments,
                "start_command has its arguments in it",
                "write them there",
            );
            return None;
        }
        if line.value.0.trim().is_empty() || line.value.0.contains('\0') {
            report.rule(
                line,
                "there is no command in it",
                "write the command that starts the program",
            );
            return None;
        }
        return Some(StartCommand::Shell(line.value.0.clone()));
    }
    let program = draft.program.written()?;
    let path = Path::new(&program.value.0);
    if !path.is_absolute() || program.value.0.contains('\0') {
        let problem = format!("{} is not an absolute path", quoted(&program.value.0));
        report.rule(program, problem, "start it with /, or write start_command");
        return None;
    }
    Some(StartCommand::Program {
        path: path.to_owned(),
        arguments: draft.arguments.or(Vec::new()),
    })
}

pub(super) fn wrapped(
    text: &PoolText,
    interface: Interface,
    draft: &WrappedDraft,
    report: &mut WorldReport<'_>,
) -> Option<Wrapped> {
    let write = "root = \"/srv/app\", the directory of the application";
    report.require(&draft.root, text.runtime_location(), "application.root", write);
    let root = file(&draft.root, report);
    let interpreter = if draft.interpreter.is_absent() {
        root.as_deref()
            .map(|root| usual_interpreter(interface, root, |path| report.world.exists(path)))
    } else {
        file(&draft.interpreter, report)
    };
    let (preload, refork_after) = (draft.preload.or(Preload::Auto), draft.refork_after.or(Vec::new()));
    if preload == Preload::Never && refork_after.first().is_some_and(|requests| *requests > 0) {
        let problem =
            "with preload = false each worker loads the application, and no worker is forked from another";
        report.refuse(&draft.refork_after, problem, "leave one out");
    }
    Some(Wrapped {
        interface,
        concurrency: concurrency(interface, draft, report),
        root: root?,
        entry: draft.entry.get(),
        interpreter: interpreter?,
        looks_for_interpreter: draft.interpreter.is_absent(),
        start_timeout: positive(&draft.start_timeout, DEFAULT_START_TIMEOUT, report),
        preloader_idle_timeout: draft.preloader_idle_timeout.or(DEFAULT_PRELOADER_IDLE_TIMEOUT),
        refork_after,
        huge_code_pages: draft.huge_code_pages.or(false),
        preload,
    })
}

fn concurrency(interface: Interface, draft: &WrappedDraft, report: &mut Report<'_>) -> u32 {
    match interface {
        Interface::Asgi => {
            let problem = "an ASGI application has an event loop, which serves many requests in one thread";
            report.refuse(
                &draft.threads,
                problem,
                "leave it out, and set concurrency instead",
            );
            report
                .range(&draft.concurrency, 1, MOST_CONCURRENCY.into())
                .unwrap_or(DEFAULT_CONCURRENCY)
        }
        Interface::Wsgi | Interface::Rack => {
            let problem = "an application without an event loop serves one request at a time in each thread";
            report.refuse(
                &draft.concurrency,
                problem,
                "leave it out, and set threads instead",
            );
            report.range(&draft.threads, 1, MOST_THREADS.into()).unwrap_or(1)
        }
    }
}
