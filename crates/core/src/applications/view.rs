//! The pool as others may see it: for a status page, and for tests.

use super::action::Trouble;
use super::event::InstanceId;
use super::instance_state::InstanceState;
use super::pool::ApplicationPool;
use crate::tick::Tick;
use std::sync::Arc;

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Most instances there may be.
    pub max: u32,
    /// Instances there are, whatever they do.
    pub count: u32,
    /// Those with sessions.
    pub active: u32,
    /// The applications, oldest first.
    pub applications: Vec<ApplicationView>,
}

/// An application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationView {
    /// Its name.
    pub name: Arc<str>,
    /// The group that it is in.
    pub group: Option<Arc<str>>,
    /// Requests that wait for an instance.
    pub waiting: usize,
    /// Sessions that wait in private queues.
    pub queued: u32,
    /// How often it was restarted.
    pub restarts: u32,
    /// A rolling restart is under way.
    pub rolling: bool,
    /// Its new code could not be started, and old instances go on.
    pub resisting: bool,
    /// It was removed and waits for its last sessions.
    pub removed: bool,
    /// Why an instance could last not be started, if that is not long past.
    pub trouble: Option<Trouble>,
    /// Its instances: those without sessions first.
    pub instances: Vec<InstanceView>,
}

/// An instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceView {
    /// Its number.
    pub id: InstanceId,
    /// What it does.
    pub state: InstanceState,
    /// Its sessions, with those in its private queue.
    pub sessions: u32,
    /// Sessions that ended well.
    pub processed: u32,
    /// How often its application had been restarted when it was begun.
    pub restarts: u32,
    /// When it was last given a session or had one end.
    pub used_at: Tick,
}

impl ApplicationPool {
    /// What is in the pool. Looks at all of it.
    pub fn view(&self) -> View {
        let applications = self.apps.values().map(|app| {
            let mut instances: Vec<InstanceView> =
                app.instances.iter().map(|id| self.instance(*id)).collect();
            instances.sort_by_key(|one| one.sessions > 0);
            ApplicationView {
                name: Arc::clone(&app.name),
                group: app.group.clone(),
                waiting: app.waiters.len(),
                queued: app.queued,
                restarts: app.restarts,
                rolling: app.rolling.is_some(),
                resisting: app.resisting,
                removed: app.removed,
                trouble: app.trouble,
                instances,
            }
        });
        View {
            max: self.max,
            count: self.count(),
            active: self.counts.active,
            applications: applications.collect(),
        }
    }

    /// An application's settings. `None`: it is unknown.
    pub fn options(&self, name: &str) -> Option<&super::Options> {
        let app = self.names.get(name).and_then(|app| self.apps.get(app))?;
        Some(&app.options)
    }

    /// The applications that have an instance, or a request that waits for one.
    pub fn names_with_instances(&self) -> impl Iterator<Item = Arc<str>> {
        let live = self
            .apps
            .values()
            .filter(|app| !app.instances.is_empty() || !app.waiters.is_empty());
        live.map(|app| Arc::clone(&app.name))
    }

    fn instance(&self, id: InstanceId) -> InstanceView {
        let one = &self.instances[&id];
        InstanceView {
            id,
            state: one.state,
            sessions: one.busyness(),
            processed: one.processed,
            restarts: one.restarts,
            used_at: one.used_at,
        }
    }
}
