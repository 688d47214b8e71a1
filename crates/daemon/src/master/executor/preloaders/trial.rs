//! Starts PHP again without a setting that prevents its start ([`crate::master::executor::trial`]).

use super::Preloaders;
use crate::master::executor::context::Context;
use crate::master::executor::start_report::exit_of_report;
use forkyard_config::{Application, StartSetting, Trial};
use forkyard_core::master::event::{Event, GenerationId};
use forkyard_spawn::error::Category;
use forkyard_spawn::report::Report;

impl Preloaders {
    /// Whether another start follows, so that this failure is no error yet.
    pub(super) fn is_tried_again(&self, context: &Context, report: &Report) -> bool {
        let zygote = report.pid.and_then(|pid| self.by_pid.get(&pid));
        match zygote.and_then(|it| it.members.sources()) {
            // Its pools get their own preloaders, which search for the setting.
            Some(common) => {
                let settings = match &common.pool.application {
                    Application::Php(php) => php.php_admin_value.len(),
                    _ => 0,
                };
                may_try(context, report) && settings > 0
            }
            None => self.on_trial(context, report).is_some(),
        }
    }

    /// Starts a preloader again without the suspected setting. Returns false if there is none.
    pub(super) fn try_again(&mut self, context: &mut Context, report: &Report) -> bool {
        let Some((pid, id)) = self.on_trial(context, report) else {
            return false;
        };
        let settings = start_settings(context, id);
        let Some(generation) = context.pools.generations.get_mut(&id) else {
            return false;
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
        context.services.happened.push_back(Event::PreloaderAgain(id));
        self.start(context, id);
        true
    }

    fn on_trial(&self, context: &Context, report: &Report) -> Option<(i32, GenerationId)> {
        let pid = report.pid.filter(|_| may_try(context, report))?;
        let members = &self.by_pid.get(&pid)?.members;
        if members.is_ending() || members.is_zygote() {
            return None;
        }
        let id = members.all().next()?;
        let make = &context.pools.generations.get(&id)?.make;
        // PHP has started with these settings before: they get a second start.
        if make.is_known && !make.has_failed {
            return None;
        }
        let can_go_on = match &make.trial {
            Some(trial) => trial.can_go_on(),
            None => !start_settings(context, id).is_empty(),
        };
        can_go_on.then_some((pid, id))
    }
}

fn may_try(context: &Context, report: &Report) -> bool {
    let is_phps_end = matches!(report.failure.category, Category::Internal | Category::Timeout);
    context.services.speaks_as_fpm && is_phps_end
}

/// The settings that PHP needs at its start, without those of a newer configuration.
fn start_settings(context: &Context, id: GenerationId) -> Vec<StartSetting> {
    let Some(generation) = context.pools.generations.get(&id) else {
        return Vec::new();
    };
    let pool = &generation.settings.pool;
    let written = context.in_force.config.start_settings.get(&pool.name);
    let Application::Php(php) = &pool.application else {
        return Vec::new();
    };
    let is_in_force = |setting: &&StartSetting| {
        let mut all = php.php_value.iter().chain(&php.php_admin_value);
        all.any(|(name, value)| *name == setting.name && *value == setting.value)
    };
    let written = written.into_iter().flatten();
    written.filter(is_in_force).cloned().collect()
}
