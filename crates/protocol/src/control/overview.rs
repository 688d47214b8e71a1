//! A pool in a few words.

use super::PoolStatus;

impl PoolStatus {
    /// Returns the state in one word.
    pub fn state(&self) -> &'static str {
        let is = |state: &str| {
            self.generations
                .iter()
                .any(|generation| generation.state == state)
        };
        let has_router = self.applications.as_ref().map(|it| it.router.is_some());
        if self.last_error.as_ref().is_some_and(|error| error.refusing) {
            "failing"
        } else if self.unreachable && (has_router == Some(true) || is("serving")) {
            "unreachable"
        } else if has_router == Some(true) || is("serving") && !is("coming") {
            "serving"
        } else if is("serving") {
            "reloading"
        } else if self.problem.is_some() {
            "down"
        } else {
            "starting"
        }
    }

    /// Returns the name of the process manager.
    pub fn manager(&self) -> &str {
        match (&self.applications, self.generations.last()) {
            (Some(_), _) => "apps",
            (None, Some(generation)) => &generation.pm,
            (None, None) => "-",
        }
    }

    /// Returns the number of waiting connections and requests; `None` if it isn't known.
    pub fn waiting(&self) -> Option<u64> {
        let view = self.applications.as_ref().and_then(|it| it.view.as_ref());
        let requests = view.map(|view| view["waiting"].as_u64().unwrap_or(0));
        let connections = self.queue.map(u64::from);
        match (connections, requests) {
            (None, None) => None,
            (connections, requests) => Some(connections.unwrap_or(0).saturating_add(requests.unwrap_or(0))),
        }
    }
}
