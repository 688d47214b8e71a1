//! Program processes in the status, those that workers start included.

use super::fastcgi_programs::{ODD, pid_of};
use super::programs::SERVER;
use crate::support::prelude::*;

fn start() -> Daemon {
    Daemon::start(|dir| {
        fs::write(dir.join("odd.py"), ODD).expect("write");
        fs::write(dir.join("server.js"), SERVER).expect("write");
        let root = dir.display();
        let static_pool = |name: &str, application: &str| pool(dir, name, "", application);
        [
            format!("[global]\ncontrol = \"{root}/control.sock\"\n"),
            static_pool(
                "node",
                &format!("runtime = \"node\"\nroot = \"{root}\"\ninstances = 2"),
            ),
            static_pool(
                "fcgi",
                &format!("runtime = \"fastcgi\"\nroot = \"{root}\"\nstart_command = \"python3 odd.py well\""),
            ),
            static_pool(
                "lost",
                &format!(
                    "runtime = \"fastcgi\"\nroot = \"{root}\"\nstart_command = \"python3 odd.py exits\""
                ),
            ),
        ]
        .concat()
    })
}

fn programs(daemon: &Daemon, name: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    until(&format!("the programs of {name}"), || {
        let status: Value = serde_json::from_str(&daemon.shown(&["status", "--json"])).expect("JSON");
        let pools = status["pools"].as_array().expect("pools").clone();
        let pool = pools
            .into_iter()
            .find(|pool| pool["name"] == name)
            .expect("the pool");
        let found = pool["generations"][0]["programs"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        wanted(&found).then_some(found)
    })
}

fn is_up(process: &Value) -> bool {
    process["state"] == "up"
}

#[test]
fn processes_are_shown_with_what_they_use() {
    let daemon = start();
    let of_node = programs(&daemon, "node", |all| all.len() == 2 && all.iter().all(is_up));
    let of_fcgi = programs(&daemon, "fcgi", |all| all.len() == 1 && all.iter().all(is_up));
    for process in of_node.iter().chain(&of_fcgi) {
        assert!(process::runs(process["pid"].as_u64().expect("a pid") as u32));
        assert!(
            process["memory"].as_u64().is_some_and(|bytes| bytes > 1 << 20),
            "{process}"
        );
        assert!(process["cpu_ms"].as_u64().is_some(), "{process}");
        assert!(
            process["uptime_ms"]
                .as_u64()
                .is_some_and(|millis| millis < 60_000),
            "{process}"
        );
        assert_has(process, json!({"requests": 0, "restarts": 0}));
    }
    let pid = pid_of(&daemon.get("fcgi", "x"));
    assert_eq!(of_fcgi[0]["pid"], pid);
    for _ in 0..2 {
        daemon.get("fcgi", "x");
        daemon.get("node", "pid");
    }
    programs(&daemon, "fcgi", |all| all[0]["requests"] == 3);
    programs(&daemon, "node", |all| {
        let requests = all.iter().filter_map(|process| process["requests"].as_u64());
        requests.sum::<u64>() == 2
    });
    let killed = of_node[1]["pid"].as_u64().expect("a pid") as u32;
    process::signal(killed, Signal::SIGKILL);
    process::signal(pid, Signal::SIGKILL);
    let again = |all: &[Value], place: usize, before: u32| {
        is_up(&all[place]) && all[place]["restarts"] == 1 && all[place]["pid"] != before
    };
    let after = programs(&daemon, "node", |all| again(all, 1, killed));
    assert_eq!(
        (&after[0]["pid"], &after[0]["restarts"]),
        (&of_node[0]["pid"], &Value::from(0))
    );
    programs(&daemon, "fcgi", |all| {
        again(all, 0, pid) && all[0]["requests"] == 0
    });
    let lost = programs(&daemon, "lost", |all| {
        all.len() == 1 && all[0]["state"] == "failing"
    });
    assert_eq!(lost[0]["uptime_ms"], Value::Null);
    let table = daemon.shown(&["status", "node"]);
    let line = table.lines().find(|line| line.contains("program 1, up, up "));
    let line = line.unwrap_or_else(|| panic!("{table}"));
    assert_contains(line, "restarts 1, memory ");
    assert_contains(line, " MiB, cpu ");
    let metrics = daemon.shown(&["status", "--metrics"]);
    for pool in ["node", "fcgi"] {
        let up = format!("forkyard_program_up{{pool=\"{pool}\",generation=");
        assert!(
            metrics
                .lines()
                .any(|line| line.starts_with(&up) && line.ends_with(" 1")),
            "{metrics}"
        );
    }
    assert_success(&daemon.run(&["upgrade"]));
    let after = programs(&daemon, "node", |all| again(all, 1, killed));
    assert!(
        after[1]["uptime_ms"]
            .as_u64()
            .is_some_and(|millis| millis < 120_000),
        "{after:?}"
    );
}

#[test]
fn a_request_that_runs_is_a_session() {
    let daemon = start();
    programs(&daemon, "node", |all| all.len() == 2 && all.iter().all(is_up));
    let _client = daemon.send("node", &Params::get(&daemon.dir, "hang", ""));
    programs(&daemon, "node", |all| {
        let sessions = all.iter().filter_map(|process| process["sessions"].as_u64());
        sessions.sum::<u64>() == 1
    });
}
