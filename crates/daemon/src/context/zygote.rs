//! Pools that use a zygote.

use super::generation::Generation;
use forkyard_config::{Preloading, sharing};
use forkyard_sys::identity::{self};
use forkyard_sys::rights;
use forkyard_worker::Settings;
use std::sync::Arc;

impl Generation {
    /// Whether its workers come from a zygote. Pools of root never use one, because a zygote forks no workers of root.
    pub(crate) fn uses_zygote(&self) -> bool {
        let identity = self.settings.identity.as_ref();
        let becomes_user = identity.is_some_and(|identity| identity.uid != 0);
        let becomes_user = becomes_user || self.has_applications();
        let may = becomes_user || !identity::is_root();
        may && self.make.unfit.is_none() && sharing::wants_zygote(&self.settings.pool)
    }

    pub(crate) fn has_applications(&self) -> bool {
        self.settings.pool.applications.is_some()
    }

    /// The kind of its preloader, in the configuration's words, and the reason if it differs from the setting.
    pub(crate) fn preloading(&self) -> (Option<String>, Option<String>) {
        let Some(php) = self.settings.pool.application.php() else {
            return (None, None);
        };
        if php.preloading != Preloading::Zygote || self.uses_zygote() {
            return (Some(php.preloading.as_str().to_owned()), None);
        }
        let reason = self.make.unfit.as_deref().unwrap_or("it runs as root");
        (Some(Preloading::Own.as_str().to_owned()), Some(reason.to_owned()))
    }

    pub(crate) fn settings_in_use(&self) -> Settings {
        let mut settings = self.settings_without_faults();
        if let Some(php) = Arc::make_mut(&mut settings.pool).application.php_mut() {
            if php.preloading == Preloading::Zygote && !self.uses_zygote() {
                php.preloading = Preloading::Own;
            }
        }
        settings
    }

    /// The sources of its workers' zygote; `None`: it has its own preloader.
    pub(crate) fn common(&self) -> Option<Settings> {
        self.uses_zygote()
            .then(|| common(&self.settings_without_faults()))
    }

    /// The user of its zygote: a new worker still has it when the master first sees it.
    pub(crate) fn zygotes_user(&self) -> Option<u32> {
        self.uses_zygote().then(|| match identity::is_root() {
            true => rights::SOURCE_OF_CHILDREN,
            false => identity::own_user(),
        })
    }
}

pub(crate) fn common(settings: &Settings) -> Settings {
    Settings {
        pool: Arc::new(sharing::common(&settings.pool)),
        identity: None,
        started: 0,
        slots: 0,
        restart_mark: None,
        ..settings.clone()
    }
}
