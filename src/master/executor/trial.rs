//! Settings that prevent PHP's start. forkyard-fpm starts the preloader again without them, because php-fpm serves such
//! a pool. With forkyard's own configuration the failed start is an error.

use super::Executor;
use super::generation::Generation;
use super::launches::exit_of_report;
use crate::config::{LeftOut, StartSetting, Trial};
use crate::control::protocol;
use crate::master::event::{Event, GenerationId};
use crate::spawn::error::Category;
use crate::spawn::report::Report;
use crate::worker::Settings;
use std::sync::Arc;

impl Executor {
    /// Whether another start follows, so that this failure is no error yet.
    pub(super) fn is_tried_again(&self, report: &Report) -> bool {
        if !self.may_try(report) {
            return false;
        }
        let zygote = report.pid.and_then(|pid| self.helpers.preloaders.get(&pid));
        let common = zygote.and_then(|it| it.members.sources());
        match common.map(|common| common.pool.application.php()) {
            // Its pools get their own preloaders, which search for the setting.
            Some(php) => php.is_some_and(|php| !php.php_admin_value.is_empty()),
            None => self.on_trial(report).is_some(),
        }
    }

    /// Starts a preloader again without the suspected setting. Returns false if there is none.
    pub(super) fn try_again(&mut self, report: &Report) -> bool {
        let Some((pid, id)) = self.on_trial(report) else {
            return false;
        };
        let settings = self.start_settings(id);
        let Some(generation) = self.pools.generations.get_mut(&id) else {
            return false;
        };
        let trial = generation.make.trial.get_or_insert_with(|| Trial::new(settings));
        trial.failed(&report.output, &report.failure.summary);
        generation.make.has_told_trial = false;
        // A zygote may start with the other settings.
        generation.make.unfit = None;
        let (name, tried) = (generation.settings.pool.name.as_str(), names(trial.left_out()));
        log::debug!("[pool {name}] PHP is started again without {tried}");
        if let Some(preloader) = self.helpers.preloaders.get_mut(&pid) {
            preloader.members.release();
        }
        self.preloader_gone(pid, exit_of_report(report));
        if let Some(resources) = self.pools.resources_mut(id) {
            resources.preloader = None;
            resources.memory = None;
        }
        self.context.happened.push_back(Event::PreloaderAgain(id));
        self.start_preloader(id);
        true
    }

    pub(super) fn end_trial(&mut self, id: GenerationId) {
        if let Some(generation) = self.pools.generations.get_mut(&id) {
            generation.make.trial = None;
        }
    }

    fn may_try(&self, report: &Report) -> bool {
        let is_phps_end = matches!(report.failure.category, Category::Internal | Category::Timeout);
        self.context.speaks_as_fpm && is_phps_end
    }

    fn on_trial(&self, report: &Report) -> Option<(i32, GenerationId)> {
        let pid = report.pid.filter(|_| self.may_try(report))?;
        let preloader = self.helpers.preloaders.get(&pid)?;
        if preloader.members.is_ending() || preloader.is_zygote() {
            return None;
        }
        let id = preloader.members.all().next()?;
        let make = &self.pools.generations.get(&id)?.make;
        // PHP has started with these settings before: they get a second start.
        if make.is_known && !make.has_failed {
            return None;
        }
        let can_go_on = match &make.trial {
            Some(trial) => trial.can_go_on(),
            None => !self.start_settings(id).is_empty(),
        };
        can_go_on.then_some((pid, id))
    }

    /// The settings that PHP needs at its start, without those of a newer configuration.
    fn start_settings(&self, id: GenerationId) -> Vec<StartSetting> {
        let Some(generation) = self.pools.generations.get(&id) else {
            return Vec::new();
        };
        let pool = &generation.settings.pool;
        let written = self.reload.config.start_settings.get(&pool.name);
        let Some(php) = pool.application.php() else {
            return Vec::new();
        };
        let is_in_force = |setting: &&StartSetting| {
            let mut all = php.php_value.iter().chain(&php.php_admin_value);
            all.any(|(name, value)| *name == setting.name && *value == setting.value)
        };
        written
            .into_iter()
            .flatten()
            .filter(is_in_force)
            .cloned()
            .collect()
    }
}

fn names(left_out: impl Iterator<Item = LeftOut>) -> String {
    left_out.map(|it| it.setting.name).collect::<Vec<_>>().join(", ")
}

impl Generation {
    pub(super) fn settings_without_faults(&self) -> Settings {
        let mut settings = self.settings.clone();
        if let Some(trial) = &self.make.trial {
            if let Some(php) = Arc::make_mut(&mut settings.pool).application.php_mut() {
                trial.apply(php);
            }
        }
        settings
    }

    /// Logs the left-out settings, once.
    pub(super) fn tell_left_out(&mut self) {
        if std::mem::replace(&mut self.make.has_told_trial, true) {
            return;
        }
        let name = &self.settings.pool.name;
        for left_out in self.make.trial.iter().flat_map(Trial::left_out) {
            log::warn!("[pool {name}] {left_out}");
        }
    }

    pub(super) fn left_out(&self) -> Vec<protocol::LeftOut> {
        let trial = self.make.trial.as_ref().filter(|_| self.make.is_known);
        let all = trial.into_iter().flat_map(Trial::left_out);
        all.map(|LeftOut { setting, reason }| protocol::LeftOut {
            key: format!("{}[{}]", setting.table, setting.name),
            value: setting.value,
            file: setting.file.display().to_string(),
            line: setting.line,
            reason,
        })
        .collect()
    }
}
