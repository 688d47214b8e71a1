//! Warm-up: the preloader of the generation that serves names its scripts, and the coming one's compiles them.

use super::generation::Generation;
use super::preloader::Command;
use super::{Helpers, Pools};
use crate::config::{Application, Php};
use crate::master::event::GenerationId;

/// PATH_MAX.
const LONGEST_PATH: usize = 4096;

impl Helpers {
    /// Asks the preloader of the generation before this one for its scripts. `asker`: the pid of this one's. `true`: they
    /// will be sent.
    pub(super) fn ask_for_scripts(&mut self, pools: &Pools, id: GenerationId, asker: i32) -> bool {
        let Some(generation) = pools.generations.get(&id) else {
            return false;
        };
        let most = php(generation).map_or(0, |php| php.warm_up);
        let serving = pools.by_id.get(&generation.pool).and_then(|pool| pool.serving);
        let Some(old) = serving.filter(|old| *old != id && most > 0) else {
            return false;
        };
        // What one user ran is nothing that another's process should open.
        let settings = &generation.settings;
        let is_alike = pools.generations.get(&old).is_some_and(|old| {
            php(old).is_some()
                && old.settings.identity == settings.identity
                && old.settings.pool.chroot == settings.pool.chroot
        });
        let Some(preloader) = self
            .preloader_of(pools, old)
            .filter(|old| is_alike && old.is_ready())
        else {
            return false;
        };
        preloader.send_plain(&Command::Scripts { most });
        let asked = preloader.pid;
        self.asked_for_scripts.insert(asked, asker);
        true
    }

    /// Hands on what a preloader named, if it was asked. Whatever it names, the other one opens it as the same user.
    pub(super) fn take_scripts(&mut self, pools: &Pools, old: i32, mut scripts: Vec<String>) {
        let Some(asker) = self.asked_for_scripts.remove(&old) else {
            return;
        };
        let Some(preloader) = self.preloaders.get_mut(&asker).filter(|p| !p.is_ready()) else {
            return;
        };
        let first = preloader.members.all().next();
        let settings = first.and_then(|id| pools.generations.get(&id));
        let most = settings.and_then(php).map_or(0, |php| php.warm_up);
        scripts.retain(|path| path.starts_with('/') && path.len() < LONGEST_PATH && !path.contains('\0'));
        scripts.truncate(most as usize);
        preloader.send_plain(&Command::Warm { scripts });
    }
}

fn php(generation: &Generation) -> Option<&Php> {
    match &generation.settings.pool.application {
        Application::Php(php) => Some(php),
        Application::Rust
        | Application::Cgi(_)
        | Application::FastCgi(_)
        | Application::Http(_)
        | Application::Program(_)
        | Application::Wrapped(_) => None,
    }
}
