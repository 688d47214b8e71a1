//! Many clients at once: kept connections, sessions and a database that all workers share.

use super::{Http, Site, assert_quiet, http, php_location};
use crate::support::prelude::*;

const SETTINGS: &str = "pm = \"static\"\nmax_children = 4\n";
const CLIENTS: usize = 8;
const REQUESTS: usize = 20;

#[test]
fn nginx_keeps_connections_to_few_workers_for_many_clients() {
    let daemon = Daemon::start(|dir| php_pool(dir, SETTINGS, ""));
    daemon.write(
        "n.php",
        "<?php echo 'answer ', $_GET['n'], '.'; if ($_GET['n'] % 50 == 0) usleep(20000);",
    );
    let http_block = format!(
        "upstream workers {{ server unix:{}; keepalive 16; }}",
        daemon.socket("www").display()
    );
    let location = php_location(
        &daemon.dir.display().to_string(),
        "workers",
        "fastcgi_keep_conn on;",
    );
    let nginx = Nginx::start(&location, &http_block);
    let output = Command::new("curl")
        .args([
            "--silent",
            "--parallel",
            "--parallel-immediate",
            "--parallel-max",
            "32",
            "--max-time",
            "120",
        ])
        .args(["--write-out", "[%{http_code} %{exitcode} %{size_download}]\n"])
        .arg(nginx.url("/n.php?n=[1001-4000]"))
        .output()
        .expect("curl");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        text.matches("[200 0 12]").count(),
        3000,
        "{:?}\n{text}",
        output.status
    );
    assert_eq!(text.matches('[').count(), 3000);
    assert_eq!(daemon.workers("www").len(), 4);
    assert_quiet(&daemon);
}

fn storm(request: impl Fn(usize) -> Http + Sync) -> Vec<String> {
    std::thread::scope(|scope| {
        let request = &request;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || (0..REQUESTS).map(|_| request(client).text()).collect::<Vec<_>>())
            })
            .collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client"))
            .collect()
    })
}

fn workers(answers: &[String]) -> usize {
    let pid = |answer: &String| {
        let pid: u32 = answer.split(' ').next()?.parse().ok()?;
        Some(pid)
    };
    answers
        .iter()
        .map(|answer| pid(answer).unwrap_or_else(|| panic!("{answer}")))
        .collect::<BTreeSet<_>>()
        .len()
}

#[test]
fn a_session_is_the_same_in_every_worker() {
    let site = Site::start(SETTINGS, "", "");
    let script =
        "<?php session_save_path(__DIR__); session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
        usleep(500); echo getmypid(), ' ', $_SESSION['n'];";
    site.write("session.php", script);
    let first = site.get("/session.php");
    let cookie = first
        .header("Set-Cookie")
        .and_then(|value| value.split(';').next())
        .expect("a cookie");
    let answers = storm(|_| http(&["--cookie", cookie, &site.nginx.url("/session.php")]));
    assert!(workers(&answers) > 1, "one worker did it all");
    let counts: BTreeSet<usize> = answers
        .iter()
        .filter_map(|answer| answer.split(' ').nth(1)?.parse().ok())
        .collect();
    assert_eq!(
        counts,
        (2..=1 + CLIENTS * REQUESTS).collect(),
        "every request saw the one before it"
    );
    assert_quiet(&site.daemon);
}

#[test]
fn workers_share_a_database_file() {
    let site = Site::start(SETTINGS, "", "");
    make_writable(&site.root);
    let script = "<?php $db = new PDO('sqlite:' . __DIR__ . '/db.sqlite', null, null,
            [PDO::ATTR_PERSISTENT => true, PDO::ATTR_TIMEOUT => 60]);
        if (isset($_GET['create'])) $db->exec('CREATE TABLE entries (client INTEGER, worker INTEGER)');
        if (isset($_GET['client'])) {
            $db->beginTransaction();
            $db->prepare('INSERT INTO entries VALUES (?, ?)')->execute([$_GET['client'], getmypid()]);
            $db->commit();
        }
        echo getmypid(), ' ', $db->query('SELECT count(*) FROM entries')->fetchColumn();";
    site.write("db.php", script);
    assert!(site.get("/db.php?create").text().ends_with(" 0"));
    let answers = storm(|client| site.get(&format!("/db.php?client={client}")));
    assert!(workers(&answers) > 1, "one worker did it all");
    let total = site.get("/db.php").text();
    assert!(total.ends_with(&format!(" {}", CLIENTS * REQUESTS)), "{total}");
    assert_quiet(&site.daemon);
}
