//! Reports of workers that ended before they took up work: what an application does in each worker failed, such as the start
//! of an ASGI lifespan.

use super::launches::{account, say_report};
use super::{Executor, WorkerProcess};
use crate::config::{Application, Preload};
use crate::master::event::Exit;
use crate::master::failed_starts::Kept;
use crate::spawn::error::{Category, Ended, Failure, headline, missing_variable};
use crate::spawn::handshake::response::{Surroundings, Text};
use crate::spawn::journey::Journey;
use crate::spawn::plan::{Kind, Plan};
use crate::spawn::report::Report;
use crate::spawn::self_spawn::error_id;
use crate::spawn::step::{Route, Step};
use crate::sys::clock;
use std::path::Path;
use std::sync::Arc;

impl Executor {
    /// Reports how a worker ended, if it had not taken up work and ended because of what the application did.
    pub(super) fn report_early_exit(&mut self, worker: &WorkerProcess, pid: i32, exit: Exit) {
        let ended = match exit {
            Exit::Unknown => return,
            Exit::Code(code) => Ended::Code(code),
            Exit::Signal { signal, core } => Ended::Signal { number: signal, core },
        };
        if worker.up || worker.told.is_some() || exit.is_from_outside() {
            return;
        }
        let Some(generation) = self.pools.generations.get(&worker.generation) else {
            return;
        };
        let settings = &generation.settings;
        let output = String::from_utf8_lossy(&worker.first_output)
            .trim_end()
            .to_owned();
        let account = account(settings.identity.clone());
        let application = &settings.pool.application;
        let (command, is_never_preloaded) = match application {
            Application::Wrapped(wrapped) => (
                wrapped.interpreter.display().to_string(),
                wrapped.preload == Preload::Never,
            ),
            _ => ("a worker".to_owned(), false),
        };
        let loads = is_never_preloaded || generation.make.connected_to.is_some();
        let root = application.root().unwrap_or(Path::new("/")).to_owned();
        let mut plan = Plan::new(&settings.pool.name, root, &command, account);
        plan.kind = Kind::Wrapper;
        plan.secrets = generation.secrets();
        let (started, now) = (worker.begun, clock::now());
        // The preloader is up; the worker was to say that it is, too.
        let step = Step::SubprocessFinish;
        let mut journey = Journey::new(Route::StartPreloader, true);
        let is_later = |step: &Step| {
            matches!(
                step,
                Step::KitHandshakePerform | Step::KitFinish | Step::SubprocessFinish
            )
        };
        let steps: Vec<Step> = journey.records().iter().map(|record| record.step).collect();
        for step in steps.into_iter().filter(|step| !is_later(step)) {
            let done = journey
                .begin(step, started)
                .and_then(|()| journey.perform(step, started));
            debug_assert!(done.is_ok(), "a step of a new journey");
        }
        journey.blame(step, now);
        let report = Report {
            id: error_id(now.as_nanos() ^ u64::from(pid.unsigned_abs())),
            plan: Arc::new(plan),
            journey,
            started,
            ended: now,
            failure: failure(step, ended, &output, settings.pool.catch_workers_output, loads),
            pid: Some(pid),
            exit: Some(ended),
            output,
            subprocess: Surroundings::default(),
            left: 0,
        };
        let report = Arc::new(report.without_secrets());
        // The output is in the log already.
        say_report(&report, true);
        let name = settings.pool.name.clone();
        self.applications.note_failure(&[worker.generation], &report);
        self.pools.errors.keep(Kept {
            report,
            epoch_s: clock::epoch_seconds(),
            pools: vec![name],
        });
    }
}

/// `loads`: each worker loads the application.
fn failure(step: Step, ended: Ended, output: &str, is_caught: bool, loads: bool) -> Failure {
    let is_word = |line: &&str| !line.is_empty() && !line.starts_with(char::is_whitespace);
    let word = headline(output).or_else(|| output.lines().rev().find(is_word));
    let missing = word.and_then(|word| missing_variable(word, output));
    let problem = match loads {
        true => {
            "The application is loaded in each worker. That, or what it does there before the first request (the start of its \
             lifespan, functions that run after the fork), ended the worker."
        }
        false => {
            "The application is loaded. What it does in each worker before the first request (the start of its lifespan, \
             functions that run after the fork) ended the worker."
        }
    };
    let solution = match is_caught {
        true => "The output says where: correct the application, or give it what it misses there.",
        false => "Let catch_workers_output be true, so that the output is seen: it says where.",
    };
    Failure {
        category: Category::Internal,
        step,
        summary: match word {
            Some(word) => format!("a worker can't begin: {word}"),
            None => format!("a worker can't begin: it {} and wrote nothing", ended.describe()),
        },
        problem: Text::Plain(problem.to_owned()),
        solution: Text::Plain(missing.unwrap_or_else(|| solution.to_owned())),
        details: None,
        source: None,
    }
}
