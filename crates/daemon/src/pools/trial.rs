//! Settings that prevent PHP's start. forkyard-fpm starts the preloader again without them, because php-fpm serves such
//! a pool. With forkyard's own configuration the failed start is an error.

use crate::context::generation::Generation;
use forkyard_config::{LeftOut, Trial};
use forkyard_protocol::control as protocol;
use forkyard_worker::Settings;
use std::sync::Arc;

impl Generation {
    pub(crate) fn settings_without_faults(&self) -> Settings {
        let mut settings = self.settings.clone();
        if let Some(trial) = &self.make.trial {
            if let Some(php) = Arc::make_mut(&mut settings.pool).application.php_mut() {
                trial.apply(php);
            }
        }
        settings
    }

    /// Logs the left-out settings, once.
    pub(crate) fn tell_left_out(&mut self) {
        if std::mem::replace(&mut self.make.has_told_trial, true) {
            return;
        }
        let name = &self.settings.pool.name;
        for left_out in self.make.trial.iter().flat_map(Trial::left_out) {
            log::warn!("[pool {name}] {left_out}");
        }
    }

    pub(crate) fn left_out(&self) -> Vec<protocol::LeftOut> {
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
