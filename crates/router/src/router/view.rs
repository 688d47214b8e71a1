//! The pool and the router's records, for the status.

use super::event_loop::{Phase, Router};
use super::state::ClientState;
use forkyard_core::applications::instance_state::InstanceState;
use forkyard_core::applications::{ApplicationView, InstanceView};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

fn state(of: InstanceState, sessions: u32) -> &'static str {
    match of {
        InstanceState::Spawning => "starting",
        InstanceState::Serving if sessions == 0 => "idle",
        InstanceState::Serving => "busy",
        InstanceState::Finishing | InstanceState::Draining => "leaving",
        InstanceState::Disabling => "disabling",
        InstanceState::Disabled => "disabled",
        InstanceState::Working => "working",
        InstanceState::Stopping => "stopping",
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_millis() as f64 / 1000.0
}

impl Router {
    pub(super) fn view(&self) -> Value {
        let app_pool = self.pool.core.view();
        let mut oldest: HashMap<Arc<str>, Duration> = HashMap::new();
        let mut waiting = 0;
        for (_, client) in self.clients.iter() {
            if let (ClientState::Waiting, Some(known)) = (client.state(), &client.known) {
                waiting += 1;
                let waits = self.now.since(client.since);
                let longest = oldest.entry(Arc::clone(&known.name)).or_default();
                *longest = waits.max(*longest);
            }
        }
        let applications = app_pool.applications.iter();
        json!({
            "max": app_pool.max,
            "instances": app_pool.count,
            "active": app_pool.active,
            "connections": self.clients.len(),
            "accepted_connections": self.clients.accepted,
            "waiting": waiting,
            "leases": self.sessions.leases(),
            "finishing": self.phase != Phase::Serving,
            "totals": self.apps.totals,
            "applications": applications.map(|app| self.application(app, &oldest)).collect::<Vec<Value>>(),
        })
    }

    fn application(&self, app: &ApplicationView, oldest: &HashMap<Arc<str>, Duration>) -> Value {
        let spawning = app
            .instances
            .iter()
            .filter(|one| one.state == InstanceState::Spawning)
            .count();
        let known = self.apps.get(&app.name);
        json!({
            "name": &*app.name,
            "group": app.group.as_deref(),
            "waiting": app.waiting,
            "queued": app.queued,
            "oldest_wait": oldest.get(&app.name).copied().map(seconds),
            "starting": spawning,
            "restarts": app.restarts,
            "restarting": app.rolling,
            "resisting": app.resisting,
            "removed": app.removed,
            "in_trouble": app.trouble.is_some(),
            "last_error": known.and_then(|known| known.error.clone()),
            "counters": known.map(|known| known.counters),
            "instances": app.instances.iter().map(|one| self.instance(one)).collect::<Vec<Value>>(),
        })
    }

    fn instance(&self, one: &InstanceView) -> Value {
        let process = self.instances.get(one.id.0);
        json!({
            "instance": one.id.0,
            "pid": process.map(|process| process.pid),
            "version": process.and_then(|process| process.revision.as_deref()),
            "state": state(one.state, one.sessions),
            "sessions": one.sessions,
            "processed": one.processed,
            "restarts": one.restarts,
            "uptime": process.map(|process| seconds(self.now.since(process.up))),
            "last_used": seconds(self.now.since(one.used_at)),
            "memory": process.and_then(|process| process.memory),
        })
    }
}
