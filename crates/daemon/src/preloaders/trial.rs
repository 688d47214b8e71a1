//! Starts PHP again without a setting that prevents its start ([`crate::pools::trial`]).
//! [`forkyard_core::php_start`] decides.

use super::Preloaders;
use crate::context::Context;
use crate::workers::start_report::exit_of_report;
use forkyard_config::{StartSetting, Trial};
use forkyard_core::master::event::{Event, GenerationId};
use forkyard_core::php_start::{FailedStart, NextStart, Starter};
use forkyard_spawn::report::Report;

impl Preloaders {
    /// The start that follows a failed one; if there is one, the failure is no error yet.
    pub(super) fn next_start(&self, context: &Context, report: &Report) -> NextStart {
        let Some(preloader) = report.pid.and_then(|pid| self.by_pid.get(&pid)) else {
            return NextStart::Nothing;
        };
        let members = &preloader.members;
        let (starter, has_settings) = match members.sources() {
            Some(common) => {
                let php = common.pool.application.php();
                (
                    Starter::Zygote,
                    php.is_some_and(|php| !php.php_admin_value.is_empty()),
                )
            }
            None => {
                let id = members.all().next();
                let own = id.and_then(|id| Some((id, context.pools.generations.get(&id)?)));
                let Some((id, generation)) = own else {
                    return NextStart::Nothing;
                };
                let make = &generation.make;
                let starter = Starter::Preloader {
                    is_ending: members.is_ending(),
                    is_proven: make.is_known && !make.has_failed,
                };
                let untried = || !start_settings(context, id).is_empty();
                (
                    starter,
                    make.trial.as_ref().map_or_else(untried, Trial::can_go_on),
                )
            }
        };
        let failed = FailedStart {
            starter,
            category: report.failure.category,
            speaks_as_fpm: context.services.speaks_as_fpm,
            has_settings,
        };
        failed.next()
    }

    /// Starts a generation's preloader again without the suspected setting.
    pub(super) fn try_again(&mut self, context: &mut Context, pid: i32, id: GenerationId, report: &Report) {
        let settings = start_settings(context, id);
        let Some(generation) = context.pools.generations.get_mut(&id) else {
            return;
        };
        let trial = generation.make.trial.get_or_insert_with(|| Trial::new(settings));
        trial.failed(&report.output, &report.failure.summary);
        generation.make.has_told_trial = false;
        // A zygote may start with the other settings.
        generation.make.unfit = None;
        let tried: Vec<String> = trial.left_out().map(|it| it.setting.name).collect();
        log::debug!(
            "[pool {}] PHP is started again without {}",
            generation.settings.pool.name,
            tried.join(", ")
        );
        if let Some(preloader) = self.by_pid.get_mut(&pid) {
            preloader.members.release();
        }
        self.gone(context, pid, exit_of_report(report));
        context.pools.set_preloader(id, None);
        context.services.tell(Event::PreloaderAgain(id));
        self.start(context, id);
    }
}

/// The settings that PHP needs at its start, without those of a newer configuration.
fn start_settings(context: &Context, id: GenerationId) -> Vec<StartSetting> {
    let generation = context.pools.generations.get(&id);
    let Some(pool) = generation.map(|generation| &generation.settings.pool) else {
        return Vec::new();
    };
    let (Some(php), Some(written)) = (
        pool.application.php(),
        context.in_force.config.start_settings.get(&pool.name),
    ) else {
        return Vec::new();
    };
    let is_in_force = |setting: &&StartSetting| {
        let mut all = php.php_value.iter().chain(&php.php_admin_value);
        all.any(|(name, value)| *name == setting.name && *value == setting.value)
    };
    written.iter().filter(is_in_force).cloned().collect()
}
