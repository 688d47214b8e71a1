//! Reports of starts that failed and of processes that ended soon after.

use crate::context::Context;
use crate::context::effect::Effect;
use crate::context::pools::Pools;
use forkyard_base::tick::Tick;
use forkyard_core::master::event::{Ended, Event, GenerationId};
use forkyard_core::master::failed_starts::Kept;
use forkyard_protocol::past_event::{EventKind, Happening};
use forkyard_spawn::error::explain_end;
use forkyard_spawn::handshake::response::Surroundings;
use forkyard_spawn::journey::Journey;
use forkyard_spawn::plan::{Account, Plan};
use forkyard_spawn::report::Report;
use forkyard_spawn::self_spawn::error_id;
use forkyard_spawn::step::{Route, Step};
use forkyard_sys::identity::Identity;
use forkyard_sys::{Error, clock};
use nix::sys::signal::Signal;
use std::sync::Arc;

/// The exit code of a preloader that could not be started: EX_SOFTWARE of sysexits.h.
const EXIT_SOFTWARE: i32 = 70;
const MOST_LINES_OF_A_REPORT: usize = 200;

impl Context {
    pub(crate) fn cant_start(&mut self, id: GenerationId, error: &Error) {
        log::error!(
            "[pool {}] can't start the preloader: {error}",
            self.pools.generation_name(id)
        );
        self.services
            .tell(Event::PreloaderGone(id, Ended::Code(EXIT_SOFTWARE)));
    }

    /// Notes a failed start that the log already describes.
    pub(crate) fn start_failed(&mut self, ids: Vec<GenerationId>, report: Arc<Report>) {
        self.processes.reported.extend(&ids);
        self.services.cause(Effect::StartFailed(ids, report));
    }
}

impl Pools {
    pub(crate) fn keep_report(&mut self, report: &Arc<Report>, pools: Vec<String>) {
        self.unrecorded
            .extend(pools.iter().map(|pool| failed_start(report, pool)));
        self.errors.keep(Kept {
            report: Arc::clone(report),
            epoch_s: clock::epoch_seconds(),
            pools,
        });
    }
}

/// The event of a failed start.
pub(crate) fn failed_start(report: &Report, pool: &str) -> Happening {
    let user = Some(report.plan.account.uid);
    Happening::of_pool(EventKind::StartFailed, pool, user, summary(report))
        .with_detail(format!("error {}", report.id))
}

pub(crate) fn summary(report: &Report) -> &str {
    let first = report.failure.summary.lines().next();
    first.unwrap_or_default().trim_end_matches('.')
}

pub(crate) fn exit_of_report(report: &Report) -> Ended {
    match report.exit {
        Some(ended) => ended,
        None if report.pid.is_some() => Ended::killed(Signal::SIGKILL as i32),
        None => Ended::Code(EXIT_SOFTWARE),
    }
}

pub(crate) fn account(identity: Option<Identity>) -> Account {
    let identity = identity.unwrap_or_else(|| Identity {
        uid: forkyard_sys::identity::own_user(),
        gid: nix::unistd::Gid::effective().as_raw(),
        groups: Vec::new(),
        name: None,
        home: None,
        shell: None,
    });
    Account {
        user: identity.name.unwrap_or_else(|| identity.uid.to_string()),
        group: identity.gid.to_string(),
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups,
        home: identity.home,
        shell: None,
    }
}

/// Logs a failed start: a line, and the details for the application's author below it. `is_known`: the log has the
/// details already.
pub(crate) fn say_report(report: &Report, is_known: bool) {
    let name = &report.plan.group;
    let failure = &report.failure;
    let what = match report.plan.internal {
        Some(_) => "preloader",
        None => "application",
    };
    log::error!(
        "[pool {name}] the {what} can't start: {} (step {}, after {:.3} s; error {})",
        summary(report),
        failure.step.name(),
        report.ended.since(report.started).as_secs_f64(),
        report.id,
    );
    if is_known {
        return;
    }
    let details = failure.details.iter().flat_map(|text| text.lines());
    let lines = failure.summary.lines().skip(1).chain(details);
    for line in lines.take(MOST_LINES_OF_A_REPORT) {
        log::error!("[pool {name}]   {line}");
    }
}

/// The end of a process that had started.
pub(crate) struct End {
    pub(crate) plan: Plan,
    pub(crate) route: Route,
    pub(crate) step: Step,
    pub(crate) pid: i32,
    pub(crate) ended: Ended,
    pub(crate) began: Tick,
    pub(crate) output: String,
    pub(crate) is_output_seen: bool,
    pub(crate) words: (&'static str, &'static str),
}

impl End {
    pub(crate) fn report(self) -> Arc<Report> {
        let now = clock::now();
        let mut journey = Journey::new(self.route, self.plan.kind.has_wrapper());
        let is_later = |step: &Step| {
            matches!(
                step,
                Step::KitHandshakePerform | Step::KitFinish | Step::SubprocessFinish
            )
        };
        let steps: Vec<Step> = journey.records().iter().map(|record| record.step).collect();
        for step in steps.into_iter().filter(|step| !is_later(step)) {
            let begun = journey.begin(step, self.began);
            let done = begun.and_then(|()| journey.perform(step, self.began));
            debug_assert!(done.is_ok(), "a step of a new journey");
        }
        journey.blame(self.step, now);
        let report = Report {
            id: error_id(now.as_nanos() ^ u64::from(self.pid.unsigned_abs())),
            failure: explain_end(
                self.step,
                (self.ended, false),
                &self.output,
                self.is_output_seen,
                self.words,
            ),
            plan: Arc::new(self.plan),
            journey,
            started: self.began,
            ended: now,
            pid: Some(self.pid),
            exit: Some(self.ended),
            output: self.output,
            subprocess: Surroundings::default(),
            left: 0,
        };
        Arc::new(report.without_secrets())
    }
}
