//! A view of the pool for status pages and tests.

use super::action::Trouble;
use super::event::InstanceId;
use super::instance_state::InstanceState;
use super::pool::ApplicationPool;
use forkyard_base::tick::Tick;
use std::sync::Arc;

/// A view of the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub max: u32,
    /// Instances in any state.
    pub count: u32,
    pub active: u32,
    pub applications: Vec<ApplicationView>,
}

/// A view of an application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplicationView {
    pub name: Arc<str>,
    pub group: Option<Arc<str>>,
    pub waiting: usize,
    /// Sessions in private queues.
    pub queued: u32,
    pub restarts: u32,
    /// Whether a rolling restart is in progress.
    pub rolling: bool,
    /// The new code can't start; old instances stay.
    pub resisting: bool,
    /// Removed, but has sessions left.
    pub removed: bool,
    /// The latest start failure, if recent.
    pub trouble: Option<Trouble>,
    /// Its instances, idle ones first.
    pub instances: Vec<InstanceView>,
}

/// A view of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceView {
    pub id: InstanceId,
    pub state: InstanceState,
    /// Its sessions, including its private queue.
    pub sessions: u32,
    /// Sessions that ended well.
    pub processed: u32,
    /// The restart count when it was started.
    pub restarts: u32,
    /// When it was last used.
    pub used_at: Tick,
}

impl ApplicationPool {
    /// Returns a view of the whole pool.
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

    /// Returns an application's settings; `None`: unknown.
    pub fn options(&self, name: &str) -> Option<&super::Options> {
        let app = self.names.get(name).and_then(|app| self.apps.get(app))?;
        Some(&app.options)
    }

    /// Returns applications that have an instance or a waiting request.
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
