//! A configuration for tests: user 33 may push payloads of a hundred bytes into `mail`, and no user into `other`.

use forkyard_config::{Address, Backoff, Durability, Jobs, JobsStore, Queue};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) fn jobs() -> Jobs {
    let second = Duration::from_secs(1);
    let queue = |name: &str, users: &[u32]| Queue {
        name: name.into(),
        pool: "www".into(),
        address: Address::Unix(PathBuf::from("/run/www.sock")),
        workers: 4,
        users: users.to_vec(),
        kinds: std::collections::BTreeMap::new(),
        script: None,
        max_running: 4,
        weight: 1,
        reserve: true,
        timeout: second,
        attempts: 3,
        crashes: 2,
        backoff: Backoff {
            first: second,
            factor: 2,
            most: second,
            jitter_percent: 0,
        },
        rate: None,
    };
    Jobs {
        store: JobsStore::File(PathBuf::from("/tmp/jobs.db")),
        push_timeout: second,
        machine_timeout: second,
        durability: Durability::Full,
        user: None,
        listen: PathBuf::from("/run/jobs.sock"),
        tcp: None,
        keep_done: second,
        keep_failed: second,
        max_payload: 100,
        max_result: 100,
        queues: vec![queue("mail", &[33]), queue("other", &[])],
        schedules: Vec::new(),
    }
}
