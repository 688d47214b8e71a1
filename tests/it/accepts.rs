//! Every listening socket is tried again when a connection can't be accepted, though nothing else happens.

use crate::support::prelude::*;

/// Errors of accept(2) when the process, the machine or the kernel is out of resources.
const ERRORS: [&str; 4] = ["EMFILE", "ENFILE", "ENOMEM", "ENOBUFS"];
const FAILURES: usize = 3;

fn start() -> Daemon {
    let daemon = Daemon::start(|dir| {
        let path = dir.display();
        fs::create_dir(dir.join("broken")).expect("mkdir");
        fs::write(dir.join("broken/wsgi.py"), "import nothing\n").expect("write");
        let site = dir.join("apps/site");
        fs::create_dir_all(&site).expect("mkdir");
        fs::write(site.join("index.php"), "<?php echo 'site';").expect("write");
        if is_root() {
            for path in [site.clone(), site.join("index.php")] {
                chown(path, Some(33), Some(33)).expect("chown");
            }
        }
        let listen =
            |name: &str| format!("listen = {{ address = \"{path}/{name}.sock\", mode = \"0666\" }}\n");
        let user = if is_root() { "user = \"www-data\"\n" } else { "" };
        let www = format!(
            "{}{user}pm = \"static\"\nmax_children = 1\nping.path = \"/ping\"\nstatus_listen = \"{path}/status.sock\"",
            listen("www")
        );
        let broken = format!("runtime = \"wsgi\"\nroot = \"{path}/broken\"");
        let broken = pool(dir, "broken", "pm = \"ondemand\"\nmax_children = 1\n", &broken);
        format!(
            "[global]\ncontrol = \"{path}/control.sock\"\nlog_level = \"debug\"\n{}\n{broken}\n[pool.sites]\n{}\
             routing = \"application\"\n[pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\n",
            php_pool(dir, &www, ""),
            listen("sites"),
        )
    });
    daemon.write("a.php", "<?php echo 'a';");
    daemon
}

fn child(daemon: &Daemon, title: &str) -> u32 {
    until(title, || process::child_titled(daemon.pid(), title))
}

fn ask(socket: &Path, params: &Params) -> Answer {
    let mut client = Client::connect(socket).expect("connect");
    client.request(params, b"").expect("answer")
}

fn is_tried_again(daemon: &Daemon, title: &str, socket: &Path, params: &Params, wanted: &str) {
    for error in ERRORS {
        let text = ask(socket, params).text();
        assert!(text.contains(wanted), "before {error}: {text}");
        let pid = child(daemon, title);
        let failing = Failing::start(pid, &daemon.dir, "accept4", error);
        let mut client = Client::connect(socket).expect("connect");
        client.send(params, b"").expect("send");
        wait_until(&format!("another attempt of {title} after {error}"), || {
            failing.count() >= FAILURES
        });
        failing.end();
        let answer = client.answer().expect("answer");
        assert!(
            answer.ended && answer.text().contains(wanted),
            "{error}: {}",
            answer.text()
        );
        assert!(process::runs(pid), "{title} has ended by {error}");
    }
}

#[test]
fn a_router_s() {
    let daemon = start();
    let root = daemon.dir.join("apps/site");
    let params = Params::get(&root, "index.php", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
    is_tried_again(
        &daemon,
        "forkyard: router sites",
        &daemon.socket("sites"),
        &params,
        "site",
    );
}

/// Without an injected error: the process runs out of descriptors, and later has some again.
#[test]
fn a_router_s_whose_descriptors_are_used_up() {
    skip_if!(needs_root());
    let daemon = start();
    let root = daemon.dir.join("apps/site");
    let params = Params::get(&root, "index.php", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
    assert!(ask(&daemon.socket("sites"), &params).text().contains("site"));
    let pid = child(&daemon, "forkyard: router sites");
    let [uid, gid] = process::user_and_group(pid);
    let limit = |files: &str| {
        let mut prlimit = Command::new("setpriv");
        prlimit
            .args(["--reuid", &uid, "--regid", &gid, "--clear-groups", "prlimit"])
            .args(["--pid", &pid.to_string(), &format!("--nofile={files}")]);
        assert!(prlimit.status().expect("prlimit").success());
    };
    limit("4:");
    let mut client = daemon.send("sites", &params);
    daemon.wait_for("can't accept a connection");
    limit("1024:");
    assert!(client.answer().expect("answer").text().contains("site"));
}

#[test]
fn a_reporter_s() {
    let daemon = start();
    let params = Params::get(&daemon.dir, "", "").with("SCRIPT_NAME", "/ping");
    let socket = daemon.dir.join("status.sock");
    is_tried_again(&daemon, "forkyard: reporter www", &socket, &params, "pong");
}

#[test]
fn a_503_responder_s() {
    let daemon = start();
    let params = Params::get(&daemon.dir, "x", "");
    is_tried_again(
        &daemon,
        "forkyard: 503 responder broken",
        &daemon.socket("broken"),
        &params,
        "503 Service Unavailable",
    );
}

#[test]
fn a_worker_s() {
    let daemon = start();
    let params = Params::get(&daemon.dir, "a.php", "");
    is_tried_again(
        &daemon,
        "forkyard: pool www",
        &daemon.socket("www"),
        &params,
        "\r\n\r\na",
    );
}

#[test]
fn the_control_socket() {
    let daemon = start();
    for error in ERRORS {
        let failing = Failing::start(daemon.pid(), &daemon.dir, "accept4", error);
        let mut status = daemon.at_socket(&["status"]);
        let mut status = status.stdout(Stdio::piped()).spawn().expect("forkyard");
        wait_until("another attempt", || failing.count() >= FAILURES);
        failing.end();
        let end = Instant::now() + PATIENCE;
        until("the status", || {
            assert!(Instant::now() < end, "{error}");
            status.try_wait().expect("wait")
        });
        let output = status.wait_with_output().expect("output");
        let text = text_of(&output.stdout);
        assert!(output.status.success() && text.contains("www"), "{error}: {text}");
    }
}
