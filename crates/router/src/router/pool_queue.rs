//! The application pool, and the events that it has not handled yet.

use forkyard_base::tick::Tick;
use forkyard_config::Applications;
use forkyard_core::applications::action::Action;
use forkyard_core::applications::event::Event;
use forkyard_core::applications::{ApplicationPool, Options};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct PoolQueue {
    pub(super) core: ApplicationPool,
    events: VecDeque<Event>,
    /// The buffer for actions. `None` while they are performed.
    pub(super) actions: Option<Vec<Action>>,
}

impl PoolQueue {
    pub(super) fn new(settings: &Applications) -> PoolQueue {
        PoolQueue {
            core: ApplicationPool::new(settings.max, settings.max_spawning).with_reserve(settings.reserve),
            events: VecDeque::new(),
            actions: Some(Vec::new()),
        }
    }

    pub(super) fn add(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Handles the next event. Returns `false` if there is none.
    pub(super) fn handle(&mut self, now: Tick, actions: &mut Vec<Action>) -> bool {
        let Some(event) = self.events.pop_front() else {
            return false;
        };
        self.core.handle(event, now, actions);
        true
    }

    pub(super) fn has_instances(&self, application: &Path) -> bool {
        let mut live = self.core.names_with_instances();
        live.any(|name| Path::new(&*name) == application)
    }

    pub(super) fn add_application(&mut self, name: &Arc<str>, options: Options) {
        let name = Arc::clone(name);
        self.add(Event::Add { name, options });
    }
}
