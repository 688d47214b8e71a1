//! A program process that came up and ended: its report and the answer to requests.

use super::Programs;
use super::plan::plan;
use crate::context::Context;
use crate::context::effect::Effect;
use crate::workers::start_report::{End, summary};
use forkyard_base::tick::Tick;
use forkyard_core::master::event::GenerationId;
use forkyard_spawn::error::{DOES_NOT_STAY, Ended};
use forkyard_spawn::report::Report;
use forkyard_spawn::step::{Route, Step};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Death {
    pub(super) pid: i32,
    pub(super) ended: Ended,
    pub(super) since: Tick,
    pub(super) output: String,
}

impl Programs {
    /// Reports a process that restarts after a delay. `refuses`: requests are refused while no process is up.
    pub(super) fn backs_off(
        &mut self,
        context: &mut Context,
        id: GenerationId,
        index: usize,
        delay: Duration,
        refuses: bool,
    ) {
        let death = self.slot(id, index).and_then(|slot| slot.death.take());
        let report = death.and_then(|death| report(context, id, death));
        let Some(record) = self.running.get_mut(&id) else {
            return;
        };
        record.last_error = report.as_ref().map(|report| report.id).or(record.last_error);
        let is_refused = refuses && !record.program.is_up();
        if let (true, Some(error)) = (is_refused, record.last_error) {
            record.failing = true;
            record.share.table().set_failure(Some(error.0));
        }
        let Some(report) = report else { return };
        let meanwhile = match is_refused {
            true => "; until it is up, requests are refused",
            false => "",
        };
        log::error!(
            "[pool {}] {}; the next try is in {} s{meanwhile} (error {})",
            report.plan.group,
            summary(&report),
            delay.as_secs_f64(),
            report.id
        );
    }
}

fn report(context: &mut Context, id: GenerationId, death: Death) -> Option<Arc<Report>> {
    let generation = context.pools.generations.get(&id)?;
    let mut plan = plan(&generation.settings)?;
    plan.secrets = generation.secrets();
    let end = End {
        plan,
        route: Route::SpawnDirectly,
        step: Step::KitFinish,
        pid: death.pid,
        ended: death.ended,
        began: death.since,
        output: death.output,
        is_output_seen: true,
        words: DOES_NOT_STAY,
    };
    let report = end.report();
    context
        .services
        .cause(Effect::ProcessDied(id, Arc::clone(&report)));
    let name = report.plan.group.clone();
    context.pools.keep_report(&report, vec![name]);
    Some(report)
}
