//! Two daemons with one PostgreSQL database.

use super::{Jobs, configuration};
use crate::support::prelude::*;

pub(super) struct Server {
    directory: tempfile::TempDir,
    port: Option<u16>,
    script: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.hang(false);
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

impl Server {
    pub(super) fn start() -> Server {
        Server::start_in(directory(), None)
    }

    fn start_in(directory: tempfile::TempDir, port: Option<u16>) -> Server {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/postgresql.sh");
        let mut script = Command::new("sh")
            .arg(script)
            .arg(directory.path())
            .args(port.map(|port| port.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let mut line = String::new();
        let output = script.stdout.take().expect("its output");
        BufReader::new(output)
            .read_line(&mut line)
            .expect("its first line");
        assert_eq!(line, "started\n");
        let server = Server {
            directory,
            port,
            script,
        };
        until("a server that answers", || server.try_sql("SELECT 1"));
        server
    }

    pub(super) fn url(&self) -> String {
        let port = self.port.map(|port| format!("&port={port}")).unwrap_or_default();
        format!(
            "postgresql://forkyard@/postgres?host={}{port}",
            self.directory.path().display()
        )
    }

    pub(super) fn hang(&self, is_hung: bool) {
        let file = self.directory.path().join("data/postmaster.pid");
        let text = fs::read_to_string(file).unwrap_or_default();
        let Some(master) = text.lines().next().and_then(|line| line.parse::<u32>().ok()) else {
            return;
        };
        let signal = if is_hung { Signal::SIGSTOP } else { Signal::SIGCONT };
        for pid in std::iter::once(master).chain(process::children(master)) {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), signal);
        }
    }

    fn try_sql(&self, statement: &str) -> Option<String> {
        let psql = Command::new("psql")
            .args(["-qAt", "-v", "ON_ERROR_STOP=1", "-c", statement, &self.url()])
            .output();
        let output = psql.expect("psql");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    }

    fn sql(&self, statement: &str) -> String {
        self.try_sql(statement).unwrap_or_else(|| panic!("{statement}"))
    }

    fn daemon(&self) -> Jobs {
        daemon_on(&self.url())
    }
}

fn daemon_on(url: &str) -> Jobs {
    let daemon = Daemon::start(|dir| {
        let text = configuration(dir, "", "max_children = 3", "", "");
        let file = format!("store = \"{}/store/jobs.db\"", dir.display());
        assert!(text.contains(&file));
        text.replace(&file, &format!("store = \"{url}\""))
    });
    Jobs { daemon }
}

#[test]
fn two_daemons_on_postgresql_do_each_job_once_although_their_connections_are_cut() {
    const COUNT: usize = 300;
    let server = Server::start();
    let daemons = [server.daemon(), server.daemon()];
    let mut ids = BTreeSet::new();
    for jobs in &daemons {
        let job = json!({"queue": "mail", "kind": "echo"});
        let pushed = jobs.ask(&json!({"command": "push", "jobs": vec![job; COUNT / 3]}));
        let pushed = pushed["jobs"].as_array().unwrap_or_else(|| panic!("{pushed}"));
        ids.extend(pushed.iter().filter_map(|job| job["id"].as_i64()));
    }
    // An application, in its own transaction.
    let pushed = server.sql(&format!(
        "SELECT forkyard.push('mail', 'echo') FROM generate_series(1, {})",
        COUNT / 3
    ));
    ids.extend(pushed.lines().filter_map(|id| id.parse::<i64>().ok()));
    assert_eq!(ids.len(), COUNT);
    let starts = || [daemons[0].starts(), daemons[1].starts()].concat();
    let cut = || {
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'forkyard-jobs'",
        )
    };
    for round in 1..=4 {
        wait_until("some are started", || starts().len() >= round * COUNT / 6);
        cut();
    }
    wait_until("all are done", || {
        server.sql("SELECT count(*) FROM forkyard.job WHERE state = 3") == COUNT.to_string()
    });
    let started = starts();
    assert_eq!(
        started.iter().map(|(id, ..)| *id).collect::<BTreeSet<_>>(),
        ids,
        "none is missing"
    );
    assert_eq!(started.len(), COUNT, "none is started twice");
    assert_eq!(server.sql("SELECT count(*) FROM forkyard.running"), "0");

    // One can cancel the other's job; a pause holds for both. An idle connection does not notice that it was cut.
    cut();
    let [one, two] = &daemons;
    assert_eq!(
        one.ask(&json!({"command": "pause", "queue": "mail"}))["result"],
        "done"
    );
    wait_until("the other hears of it", || {
        let queues = two.ask(&json!({"command": "queues"}));
        queues["queues"][0]["paused"] == true
    });
    two.ask(&json!({"command": "resume", "queue": "mail"}));
    let long = one.push("gate", json!({"payload": "never"}));
    let holder = until("its start", || {
        let holds = |jobs: &&&Jobs| jobs.starts().iter().any(|(id, ..)| *id == long);
        [one, two].iter().find(holds).copied()
    });
    let other = if std::ptr::eq(holder, one) { two } else { one };
    other.ask(&json!({"command": "cancel", "id": long}));
    assert_eq!(other.wait(long)["state"], "cancelled");

    // The one that runs it can't receive anything at that moment.
    let deaf = one.push("gate", json!({"payload": "never"}));
    let holder = until("its start", || {
        let holds = |jobs: &&&Jobs| jobs.starts().iter().any(|(id, ..)| *id == deaf);
        [one, two].iter().find(holds).copied()
    });
    let other = if std::ptr::eq(holder, one) { two } else { one };
    server.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'forkyard-jobs' AND query LIKE 'LISTEN%'",
    );
    other.ask(&json!({"command": "cancel", "id": deaf}));
    assert_eq!(other.wait(deaf)["state"], "cancelled");

    // One's process dies: its successor finds the orphans.
    let kept = one.push("gate", json!({"payload": "kept"}));
    let holder = until("its start", || {
        let holds = |jobs: &&&Jobs| jobs.starts().iter().any(|(id, ..)| *id == kept);
        [one, two].iter().find(holds).copied()
    });
    process::signal(holder.keeper_of_jobs(holder.daemon.pid()), Signal::SIGKILL);
    one.open("kept");
    two.open("kept");
    let done = holder.wait(kept);
    assert_eq!((&done["state"], &done["attempt"]), (&json!("done"), &json!(2)));
}

/// Here the end of a job is found in several ways.
#[test]
fn a_client_that_waits_for_a_job_on_postgresql_is_answered_once() {
    let server = Server::start();
    server.daemon().assert_waits_are_answered_once();
}

#[test]
fn a_store_over_the_network_is_encrypted_and_one_that_is_not_trusted_is_told_of() {
    let files = directory();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates.sh");
    let made = Command::new("sh").arg(script).arg(files.path()).status();
    assert!(made.expect("sh").success());
    let own = directory();
    for name in ["server.crt", "server.key", "authority.crt"] {
        fs::copy(files.path().join(name), own.path().join(name)).expect("a copy");
    }
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("its address").port();
    drop(free);
    let server = Server::start_in(own, Some(port));
    let url = |authority: &str| {
        format!(
            "postgresql://forkyard@localhost:{port}/postgres?sslmode=verify-full&sslrootcert={}/{authority}.crt",
            files.path().display()
        )
    };
    let jobs = daemon_on(&url("authority"));
    let id = jobs.push("echo", json!({"payload": "sealed"}));
    assert_eq!(jobs.wait(id)["state"], "done");
    let encrypted = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'forkyard-jobs'";
    assert_eq!(server.sql(encrypted), "t");
    let deceived = daemon_on(&url("other"));
    deceived
        .daemon
        .wait_for("database postgres of PostgreSQL at localhost: the server's certificate is not accepted: ");
}
