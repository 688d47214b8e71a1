//! Reports workers that exited before they were ready, such as in an ASGI lifespan.

use super::launches::{account, say_report};
use super::{Executor, WorkerProcess};
use crate::config::Preload;
use crate::master::failed_starts::Kept;
use crate::spawn::error::{Ended, explain_end};
use crate::spawn::handshake::response::Surroundings;
use crate::spawn::journey::Journey;
use crate::spawn::plan::{Kind, Plan};
use crate::spawn::report::Report;
use crate::spawn::self_spawn::error_id;
use crate::spawn::step::{Route, Step};
use crate::sys::clock;
use crate::tick::Tick;
use std::path::Path;
use std::sync::Arc;

const CANT_BEGIN: (&str, &str) = (
    "a worker can't begin",
    "The application is loaded. Code that it runs in each worker before the first request (the start of its \
     lifespan, functions that run after the fork) ended the worker.",
);

const CANT_LOAD: (&str, &str) = (
    CANT_BEGIN.0,
    "The application is loaded in each worker. Loading it, or code that it runs there before the first request \
     (the start of its lifespan, functions that run after the fork), ended the worker.",
);

impl Executor {
    /// Reports the end of a worker that never took up work, if the application caused it.
    pub(super) fn report_early_exit(&mut self, worker: &WorkerProcess, pid: i32, ended: Ended) {
        if worker.up || worker.told.is_some() || ended == Ended::Unknown || ended.is_from_outside() {
            return;
        }
        if self.has_told_of_start(worker) {
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
        let wrapped = application.wrapped();
        let command = wrapped.map_or("a worker".to_owned(), |it| it.interpreter.display().to_string());
        let is_never_preloaded = wrapped.is_some_and(|it| it.preload == Preload::Never);
        let loads = is_never_preloaded || generation.make.connected_to.is_some();
        let root = application.root().unwrap_or(Path::new("/")).to_owned();
        let mut plan = Plan::new(&settings.pool.name, root, &command, account);
        plan.kind = Kind::Wrapper;
        plan.secrets = generation.secrets();
        let report = Arc::new(report_of_end(End {
            plan,
            // The preloader has loaded the application; the worker's next step was to report that it is up.
            route: Route::StartPreloader,
            step: Step::SubprocessFinish,
            pid,
            ended,
            began: worker.begun,
            output,
            is_output_seen: settings.pool.logs.catch_workers_output,
            words: if loads { CANT_LOAD } else { CANT_BEGIN },
        }));
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

impl Executor {
    fn has_told_of_start(&mut self, worker: &WorkerProcess) -> bool {
        // Its last report may still be unread.
        self.pools.hear_reports(worker.generation);
        let Some(generation) = self.pools.generations.get(&worker.generation) else {
            return false;
        };
        let is_told = generation.settings.pool.application.traits().starts_from_disk;
        let last = self.pools.errors.last(&generation.settings.pool.name);
        is_told && last.is_some_and(|kept| kept.report.ended >= worker.begun)
    }
}

pub(super) struct End {
    pub(super) plan: Plan,
    pub(super) route: Route,
    pub(super) step: Step,
    pub(super) pid: i32,
    pub(super) ended: Ended,
    pub(super) began: Tick,
    pub(super) output: String,
    pub(super) is_output_seen: bool,
    pub(super) words: (&'static str, &'static str),
}

pub(super) fn report_of_end(end: End) -> Report {
    let now = clock::now();
    let mut journey = Journey::new(end.route, end.plan.kind.has_wrapper());
    let is_later = |step: &Step| {
        matches!(
            step,
            Step::KitHandshakePerform | Step::KitFinish | Step::SubprocessFinish
        )
    };
    let steps: Vec<Step> = journey.records().iter().map(|record| record.step).collect();
    for step in steps.into_iter().filter(|step| !is_later(step)) {
        let done = journey
            .begin(step, end.began)
            .and_then(|()| journey.perform(step, end.began));
        debug_assert!(done.is_ok(), "a step of a new journey");
    }
    journey.blame(end.step, now);
    let report = Report {
        id: error_id(now.as_nanos() ^ u64::from(end.pid.unsigned_abs())),
        failure: explain_end(
            end.step,
            (end.ended, false),
            &end.output,
            end.is_output_seen,
            end.words,
        ),
        plan: Arc::new(end.plan),
        journey,
        started: end.began,
        ended: now,
        pid: Some(end.pid),
        exit: Some(end.ended),
        output: end.output,
        subprocess: Surroundings::default(),
        left: 0,
    };
    report.without_secrets()
}
