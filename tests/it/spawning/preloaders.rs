//! Preloaders that crash, lie and hang.

use super::{Kit, SHORT, other_user};
use forkyard::spawn::error::Category;
use forkyard::spawn::event::Event;
use forkyard::spawn::journey::State;
use forkyard::spawn::plan::{Method, Plan};
use forkyard::spawn::step::Step;

/// A preloader in Python. `answer` is what it does with a connection `client` and the command `work`.
fn preloader(kit: &Kit, answer: &str) -> Plan {
    let script = format!(
        r#"
import json, os, select, signal, socket, sys
def respond(work, address, protocol):
    sockets = [{{"address": address, "protocol": protocol, "concurrency": 1,
                "accept_http_requests": protocol != "preloader"}}]
    with open(work + "/response/properties.json", "w") as file:
        json.dump({{"sockets": sockets}}, file)
    with open(work + "/response/finish", "w") as file:
        file.write("1")
def worker(work):
    os.setsid()
    os.dup2(os.open(work + "/stdin", os.O_RDONLY), 0)
    os.dup2(os.open(work + "/stdout_and_err", os.O_WRONLY), 1)
    os.dup2(1, 2)
    respond(work, "tcp://127.0.0.1:9", "http")
    sys.stdin.read()
    os._exit(0)
def fork(work, client):
    pid = os.fork()
    if pid == 0:
        server.close()
        client.close()
        worker(work)
    client.sendall(json.dumps({{"result": "ok", "pid": pid}}).encode() + b"\n")
with open("starts", "a") as file:
    file.write("x")
starts = os.path.getsize("starts")
print("preloader", starts, flush=True)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
path = os.path.abspath("../sockets/p%d" % os.getpid())
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen(5)
respond(os.environ["FORKYARD_SPAWN_WORK_DIR"], "unix:" + path, "preloader")
while select.select([server, sys.stdin], [], [])[0] != [sys.stdin]:
    client, _ = server.accept()
    work = json.loads(client.makefile().readline())["work_dir"]
{answer}
    client.close()
"#
    );
    std::fs::write(kit.root().join("preloader.py"), script).expect("a file");
    let mut plan = kit.native("");
    plan.start_command = "/usr/bin/python3 preloader.py".to_owned();
    plan.method = Method::Smart;
    plan.socket_dir = Some(kit.scratch.path().join("sockets"));
    plan
}

fn starts(kit: &Kit) -> usize {
    super::text(kit.root().join("starts")).len()
}

#[test]
fn many_are_forked_by_one() {
    let mut kit = Kit::new();
    let plan = preloader(&kit, "    fork(work, client)");
    for _ in 0..40 {
        kit.driver.spawn(plan.clone());
    }
    for _ in 0..40 {
        let up = kit.answer().unwrap_or_else(|report| panic!("{}", report.text()));
        assert_eq!(
            up.journey.state(Step::KitProcessResponseFromPreloader),
            State::Performed
        );
        assert_eq!(up.journey.state(Step::KitConnectToPreloader), State::Performed);
    }
    assert_eq!(starts(&kit), 1);
    let said = kit.driver.said().join("\n");
    assert!(said.contains("the preloader of"), "{said}");
    kit.stop();
    kit.assert_clean();
    let sockets = std::fs::read_dir(kit.scratch.path().join("sockets")).expect("the directory");
    assert_eq!(sockets.count(), 0, "its socket is left");
}

#[test]
fn one_that_crashes_is_started_again_and_asked_once_more() {
    let mut kit = Kit::new();
    let crash_once = "    if starts == 1:\n        os._exit(1)\n    fork(work, client)";
    kit.up(preloader(&kit, crash_once));
    assert_eq!(starts(&kit), 2);

    let mut kit = Kit::new();
    let Err(report) = kit.spawn(preloader(&kit, "    os._exit(1)")) else {
        panic!("it came up");
    };
    assert_eq!(starts(&kit), 2);
    assert_eq!(report.failure.category, Category::Io);
    assert_eq!(report.failure.step, Step::KitReadResponseFromPreloader);
    kit.stop();
    kit.assert_clean();
}

#[test]
fn one_that_answers_with_an_error_or_garbage_goes_on() {
    let number = std::process::id();
    for (answer, said) in [
        (
            r#"    client.sendall(b'{"result":"error","message":"no room"}\n')"#.to_owned(),
            "no room",
        ),
        ("    client.sendall(b'garbage\\n')".to_owned(), "not the JSON"),
        (
            "    client.sendall(b'x' * 20000)".to_owned(),
            "longer than 10240 bytes",
        ),
        (
            r#"    client.sendall(b'{"result":"ok"}')"#.to_owned(),
            "has no \"pid\"",
        ),
        (
            format!("    client.sendall(b'{{\"result\":\"ok\",\"pid\":{number}}}\\n')"),
            "is not its child",
        ),
    ] {
        let mut kit = Kit::new();
        let plan = preloader(&kit, &answer);
        for _ in 0..2 {
            let Err(report) = kit.spawn(plan.clone()) else {
                panic!("it came up");
            };
            let text = report.failure.summary.clone();
            assert!(text.contains(said), "{answer}: {text}");
            let known = report.preloader.as_ref().expect("its surroundings are told");
            assert!(
                known
                    .envvars
                    .as_deref()
                    .is_some_and(|text| text.contains("IN_PASSENGER"))
            );
        }
        assert_eq!(starts(&kit), 1);
        kit.stop();
        kit.assert_clean();
    }
}

#[test]
fn a_fork_that_fails_says_so_itself() {
    let mut kit = Kit::new();
    let answer = "    pid = os.fork()\n    if pid == 0:\n        os.setsid()\n        \
                  os.dup2(os.open(work + '/stdout_and_err', os.O_WRONLY), 2)\n        \
                  os.write(2, b'fork says no')\n        os._exit(7)\n    \
                  client.sendall(json.dumps({'result': 'ok', 'pid': pid}).encode() + b'\\n')";
    let Err(report) = kit.spawn(preloader(&kit, answer)) else {
        panic!("it came up");
    };
    assert!(report.output.contains("fork says no"), "{}", report.text());
    assert_eq!(report.failure.step, Step::SubprocessPrepareAfterForking);
    kit.stop();
    kit.assert_clean();
}

#[test]
fn one_that_does_not_answer_is_a_timeout() {
    let mut kit = Kit::new();
    let mut plan = preloader(&kit, "    import time\n    time.sleep(1000)");
    plan.start_timeout = SHORT * 4;
    let Err(report) = kit.spawn(plan) else {
        panic!("it came up");
    };
    assert_eq!(report.failure.category, Category::Timeout);
    assert_eq!(report.failure.step, Step::KitReadResponseFromPreloader);
    // It does not look at its standard input either: it has to be terminated.
    kit.stop();
    kit.assert_clean();
}

#[test]
fn one_that_does_not_come_up_is_told_to_all_who_wait() {
    let mut kit = Kit::new();
    let mut plan = kit.native("echo broken >&2; exit 3");
    plan.method = Method::Smart;
    for _ in 0..5 {
        kit.driver.spawn(plan.clone());
    }
    let mut ids = Vec::new();
    for _ in 0..5 {
        let Err(report) = kit.answer() else {
            panic!("it came up");
        };
        assert!(report.output.contains("broken"));
        assert!(
            report
                .failure
                .summary
                .contains("The preloader exited with code 3")
        );
        ids.push(report.id);
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    kit.assert_clean();
    let mut plan = kit.native("echo slow; sleep 1000");
    (plan.method, plan.start_timeout) = (Method::Smart, SHORT);
    let report = kit.failure(plan);
    assert_eq!(report.failure.category, Category::Timeout);
    assert!(report.output.contains("slow"));
}

#[test]
fn one_without_a_preloader_socket_is_refused() {
    let mut kit = Kit::new();
    let mut plan = kit.native(super::UP);
    plan.method = Method::Smart;
    let report = kit.failure(plan);
    assert!(report.failure.problem.as_str().contains("protocol \"preloader\""));
}

#[test]
fn one_that_is_idle_goes_and_its_forks_live_on() {
    let mut kit = Kit::new();
    let mut plan = preloader(&kit, "    fork(work, client)");
    plan.max_preloader_idle_time = std::time::Duration::from_millis(100);
    let up = kit.up(plan);
    kit.driver.finish().expect("it goes by itself");
    assert!(crate::support::process::runs(up.pid as u32));
    kit.stop();
    kit.assert_clean();
}

#[test]
fn a_group_is_retired_and_starts_anew() {
    let mut kit = Kit::new();
    let plan = preloader(&kit, "    fork(work, client)");
    kit.up(plan.clone());
    kit.driver.tell(Event::Retire {
        group: "app".to_owned(),
    });
    kit.up(plan);
    assert_eq!(starts(&kit), 2);
}

#[test]
fn forks_run_as_the_user() {
    let Some(account) = other_user() else { return };
    let mut kit = Kit::new();
    use std::os::unix::fs::PermissionsExt;
    for directory in ["app", "sockets"] {
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(kit.scratch.path().join(directory), open).expect("a mode");
    }
    let mut plan = preloader(&kit, "    fork(work, client)");
    (plan.account, plan.switch_user) = (account, true);
    let up = kit.up(plan);
    let uid = crate::support::process::status_line(up.pid as u32, "Uid");
    assert_eq!(uid.as_deref().map(|uid| uid.starts_with("33")), Some(true));
}
