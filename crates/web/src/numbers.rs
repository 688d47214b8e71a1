//! The numbers that the web process gets: no request, no error text, no path of a tenant's file.

use forkyard_protocol::control::{DaemonMode, GenerationStatus, PoolStatus, Status};
use forkyard_scoreboard::status::{ListenQueue, Snapshot};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The numbers of all pools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Numbers {
    pub mode: DaemonMode,
    /// The status without requests.
    pub status: Status,
    /// The numbers of php-fpm's status page, of pools with a serving generation.
    pub pages: BTreeMap<String, PoolPage>,
}

/// The numbers of php-fpm's status page, which begin anew with each generation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolPage {
    pub process_manager: String,
    /// In seconds since 1970.
    pub start: i64,
    /// Time of the numbers, in seconds since 1970.
    pub now: i64,
    pub utc_offset_s: i32,
    pub accepted: u64,
    /// Length, peak and limit of the listen queue.
    pub listen_queue: [u32; 3],
    pub idle: u32,
    pub active: u32,
    pub max_active: u32,
    pub max_children_reached: u64,
    pub slow: u64,
    pub memory_peak: Option<u64>,
    pub in_flight: Option<u32>,
    pub quiet: u32,
}

impl Numbers {
    /// Keeps the numbers of a status.
    pub fn new(mode: DaemonMode, mut status: Status, pages: BTreeMap<String, PoolPage>) -> Numbers {
        status.config.clear();
        (status.log, status.jobs) = (None, None);
        for one in &mut status.skipped {
            one.reasons.clear();
        }
        if let Some(last) = &mut status.last_reload {
            last.error = None;
        }
        status.pools.iter_mut().for_each(leave_numbers);
        Numbers { mode, status, pages }
    }
}

fn leave_numbers(pool: &mut PoolStatus) {
    // Whether there is a problem is part of the state.
    pool.problem.iter_mut().for_each(String::clear);
    pool.shares = None;
    pool.logs.clear();
    if let Some(last) = pool.releases.as_mut().and_then(|it| it.last.as_mut()) {
        last.why = None;
        last.remarks.clear();
    }
    if let Some(error) = &mut pool.last_error {
        error.summary.clear();
    }
    if let Some(applications) = &mut pool.applications {
        applications.errors.clear();
        let view = applications.view.as_mut();
        let listed = view.and_then(|view| view.get_mut("applications")?.as_array_mut());
        for application in listed.into_iter().flatten().filter_map(Value::as_object_mut) {
            application.remove("last_error");
            application.remove("connected_to");
        }
    }
    pool.generations.iter_mut().for_each(leave_counts);
}

fn leave_counts(generation: &mut GenerationStatus) {
    (generation.unfit, generation.connected_to) = (None, None);
    generation.left_out.clear();
    for worker in &mut generation.workers {
        let texts = [
            &mut worker.script,
            &mut worker.method,
            &mut worker.uri,
            &mut worker.query,
        ];
        texts.into_iter().for_each(String::clear);
        worker.route = None;
    }
    if let Some(boot) = &mut generation.boot {
        boot.because = None;
        boot.warm_up.iter_mut().for_each(|request| request.path.clear());
    }
}

impl From<&Snapshot> for PoolPage {
    fn from(snapshot: &Snapshot) -> PoolPage {
        let queue = snapshot.listen_queue;
        PoolPage {
            process_manager: snapshot.process_manager.to_owned(),
            start: snapshot.start,
            now: snapshot.now,
            utc_offset_s: snapshot.utc_offset_s,
            accepted: snapshot.accepted,
            listen_queue: [queue.current, queue.max, queue.len],
            idle: snapshot.idle,
            active: snapshot.active,
            max_active: snapshot.max_active,
            max_children_reached: snapshot.max_children_reached,
            slow: snapshot.slow,
            memory_peak: snapshot.memory_peak,
            in_flight: snapshot.in_flight,
            quiet: snapshot.quiet,
        }
    }
}

impl PoolPage {
    /// Returns the content of the status page, without workers.
    pub(crate) fn snapshot(&self, pool: &str) -> Snapshot {
        let [current, max, len] = self.listen_queue;
        Snapshot {
            pool: pool.to_owned(),
            process_manager: manager(&self.process_manager),
            start: self.start,
            now: self.now,
            utc_offset_s: self.utc_offset_s,
            accepted: self.accepted,
            listen_queue: ListenQueue { current, max, len },
            idle: self.idle,
            active: self.active,
            total: self.idle.saturating_add(self.active),
            max_active: self.max_active,
            max_children_reached: self.max_children_reached,
            slow: self.slow,
            memory_peak: self.memory_peak,
            in_flight: self.in_flight,
            quiet: self.quiet,
            workers: Vec::new(),
        }
    }
}

fn manager(name: &str) -> &'static str {
    let known = ["static", "dynamic", "ondemand", "ordered"];
    known.into_iter().find(|known| *known == name).unwrap_or("static")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::control::{Applications, LastError, StartError, WorkerStatus};
    use forkyard_protocol::release::{Deployment, Outcome, PoolReleases};
    use forkyard_protocol::skipped::Skipped;
    use serde_json::json;

    #[test]
    fn numbers_have_no_text_of_requests_and_errors() {
        const TEXT: &str = "private";
        let text = || TEXT.to_owned();
        let worker = WorkerStatus {
            script: text(),
            method: text(),
            uri: text(),
            query: text(),
            in_flight: Some(3),
            ..WorkerStatus::default()
        };
        let generation = GenerationStatus {
            unfit: Some(text()),
            connected_to: Some(text()),
            workers: vec![worker],
            ..GenerationStatus::default()
        };
        let pool = PoolStatus {
            problem: Some(text()),
            shares: Some(text()),
            last_error: Some(LastError {
                id: "7".to_owned(),
                time: 1,
                summary: text(),
                refusing: true,
                is_over: false,
            }),
            applications: Some(Applications {
                router: None,
                inspector: None,
                max: 1,
                starting: Vec::new(),
                errors: vec![StartError {
                    application: text(),
                    id: text(),
                    message: text(),
                    time: 0,
                }],
                view: Some(
                    json!({"applications": [{"name": "/srv/a", "last_error": TEXT, "connected_to": TEXT}]}),
                ),
            }),
            releases: Some(Box::new(PoolReleases {
                pool: "a".to_owned(),
                link: "/srv/current".into(),
                release: Some("/srv/1".into()),
                uid: 33,
                under_way: None,
                last: Some(Deployment {
                    pool: "a".to_owned(),
                    release: "/srv/2".into(),
                    before: None,
                    outcome: Outcome::Failed,
                    why: Some(text()),
                    remarks: vec![text()],
                    took_ms: 1,
                    time: 1,
                }),
                outside: 0,
                workers: Vec::new(),
            })),
            generations: vec![generation],
            ..PoolStatus::default()
        };
        let status = Status {
            config: text(),
            pools: vec![pool],
            skipped: vec![Skipped {
                pool: Some("b".to_owned()),
                file: "/f".into(),
                reasons: vec![text()],
                goes_on: false,
            }],
            ..Status::default()
        };
        let numbers = Numbers::new(DaemonMode::Serving, status, BTreeMap::new());
        let sent = serde_json::to_string(&numbers).expect("plain values");
        assert!(!sent.contains(TEXT), "{sent}");
        assert!(
            sent.contains("/srv/a") && sent.contains("\"in_flight\":3"),
            "{sent}"
        );
        assert_eq!(serde_json::from_str::<Numbers>(&sent).expect("numbers"), numbers);
    }
}
