//! Applications start, and their properties are read.

use super::{Kit, SHORT, UP, other_user};
use crate::support::prelude::*;
use forkyard_spawn::error::Category;
use forkyard_spawn::handshake::properties::Address;
use forkyard_spawn::journey::StepState;
use forkyard_spawn::step::Step;

#[test]
fn a_generic_application_is_up_when_its_port_answers() {
    let mut kit = Kit::new();
    let up = kit.up(kit.generic("/usr/bin/python3 -m http.server --bind 127.0.0.1 $PORT"));
    assert_eq!(up.sockets.len(), 1);
    assert_eq!(
        (up.sockets[0].protocol.as_str(), up.sockets[0].concurrency),
        ("http", -1)
    );
    let Address::Tcp(host, port) = &up.sockets[0].address else {
        panic!("no port");
    };
    let mut stream = TcpStream::connect((host.as_str(), *port)).expect("a connection");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert_starts(&answer, "HTTP/1.0 200");
    let pid = nix::unistd::Pid::from_raw(up.pid);
    nix::sys::signal::kill(pid, Signal::SIGTERM).expect("it lives");
}

#[test]
fn a_native_application_says_when_it_is_up() {
    let mut kit = Kit::new();
    let up = kit.up(kit.native(UP));
    assert_eq!(up.sockets[0].address, Address::Tcp("127.0.0.1".to_owned(), 9));
    for step in [
        Step::KitPreparation,
        Step::KitForkSubprocess,
        Step::KitHandshakePerform,
        Step::KitFinish,
        Step::SubprocessBeforeFirstExec,
        Step::SubprocessSetupperBeforeShell,
        Step::SubprocessSetupperAfterShell,
    ] {
        assert_eq!(up.journey.state(step), StepState::Performed, "{}", step.name());
        assert!(up.journey.duration(step).is_some(), "{}", step.name());
    }
    assert_eq!(up.journey.state(Step::SubprocessOsShell), StepState::NotStarted);
    assert_eq!(
        up.journey.state(Step::SubprocessAppLoadOrExec),
        StepState::InProgress
    );
}

#[test]
fn an_application_that_executes_itself_again_keeps_its_pid() {
    let mut kit = Kit::new();
    let script = format!("test -n \"$again\" || again=1 exec /bin/sh ./app.sh\necho $$ > pid\n{UP}");
    let up = kit.up(kit.native(&script));
    assert_eq!(super::text(kit.root().join("pid")).trim(), up.pid.to_string());
}

#[test]
fn the_steps_and_texts_of_the_application_are_heard() {
    let mut kit = Kit::new();
    let script = r#"
        cd "$FORKYARD_SPAWN_WORK_DIR/response"
        printf STEP_PERFORMED > steps/subprocess_app_load_or_exec/state
        printf STEP_ERRORED > steps/subprocess_listen/state
        printf IO_ERROR > error/category
        printf 'the database is away\n' > error/summary
        printf '<b>bold</b>' > error/problem_description.html
        printf plain > error/problem_description.txt
        printf 'start the database' > error/solution_description.txt
        printf 'at line 3' > error/advanced_problem_details
        printf 'ruby 3' > ../envdump/annotations/ruby_info
        echo last words >&2
        printf 0 > finish
        cat > /dev/null
    "#;
    let report = kit.failure(kit.native(script));
    let failure = &report.failure;
    assert_eq!(
        (failure.category, failure.step),
        (Category::Io, Step::SubprocessListen)
    );
    assert_eq!(failure.summary, "the database is away");
    assert_eq!(failure.problem.as_str(), "<b>bold</b>");
    assert_eq!(failure.solution.as_str(), "start the database");
    assert_eq!(failure.details.as_deref(), Some("at line 3"));
    assert!(report.output.contains("last words"));
    assert_eq!(
        report.journey.state(Step::KitHandshakePerform),
        StepState::Errored
    );
    assert_eq!(report.journey.state(Step::SubprocessListen), StepState::Errored);
    assert_eq!(
        report.journey.state(Step::SubprocessAppLoadOrExec),
        StepState::Performed
    );
    let variables = report.subprocess.envvars.as_deref().expect("a dump");
    assert!(variables.contains("IN_PASSENGER=1"));
    assert_eq!(
        report.subprocess.annotations,
        [("ruby_info".to_owned(), "ruby 3".to_owned())]
    );
    assert!(String::from_utf8_lossy(&kit.logged.borrow()).contains("last words"));
    let html = report.html();
    assert!(html.contains("the database is away") && !html.contains("<b>bold"));
}

#[test]
fn an_application_that_takes_too_long_is_ended() {
    let mut kit = Kit::new();
    let mut plan = kit.native("sleep 1000");
    plan.start_timeout = SHORT;
    let report = kit.failure(plan);
    assert_eq!(report.failure.category, Category::Timeout);
    assert_eq!(report.failure.step, Step::KitHandshakePerform);
    assert!(report.ended.since(report.started) >= SHORT);
    assert!(report.exit.is_none(), "it did not end by itself");
}

#[test]
fn unix_sockets_have_to_be_the_users_and_in_their_directory() {
    let mut kit = Kit::new();
    let sockets = kit.scratch.path().join("sockets");
    let good = sockets.join("good");
    let script = |path: &Path, user: Option<u32>| {
        let chown = user.map(|uid| format!("os.chown({path:?}, {uid}, -1)"));
        format!(
            "exec /usr/bin/python3 -c '\nimport socket, os, json, sys\ns = socket.socket(socket.AF_UNIX)\n\
             s.bind({path:?}); s.listen()\n{}\nw = os.environ[\"FORKYARD_SPAWN_WORK_DIR\"]\n\
             o = open(w + \"/response/properties.json\", \"w\")\n\
             json.dump({{\"sockets\": [{{\"address\": \"unix:\" + {path:?}, \"protocol\": \"http\", \
             \"concurrency\": 1, \"accept_http_requests\": True}}]}}, o)\no.close()\n\
             open(w + \"/response/finish\", \"w\").write(\"1\")\nsys.stdin.read()'",
            chown.unwrap_or_default()
        )
    };
    let mut plan = kit.native(&script(&good, None));
    plan.socket_dir = Some(sockets.clone());
    assert_eq!(kit.up(plan).sockets[0].address, Address::Unix(good));
    kit.stop();

    let mut kit = Kit::new();
    let mut plan = kit.native(&script(&kit.root().join("outside"), None));
    plan.socket_dir = Some(kit.scratch.path().join("sockets"));
    let report = kit.failure(plan);
    assert_contains(report.failure.problem.as_str(), "which is not in");
    assert_eq!(report.failure.step, Step::SubprocessAppLoadOrExec);

    if let Some(other) = other_user() {
        let mut kit = Kit::new();
        let path = kit.scratch.path().join("sockets/theirs");
        let mut plan = kit.native(&script(&path, Some(other.uid)));
        plan.socket_dir = Some(kit.scratch.path().join("sockets"));
        assert_contains(kit.failure(plan).failure.problem.as_str(), "belongs to user");
    }
}

#[test]
fn a_hundred_spawns_are_under_way_at_once_and_one_that_hangs_delays_none() {
    let mut kit = Kit::new();
    let quick = kit.native(UP);
    let mut slow = quick.clone();
    slow.group = "slow".to_owned();
    slow.start_command = "sleep 1000".to_owned();
    slow.start_timeout = Duration::from_secs(300);
    kit.driver.spawn(slow);
    for number in 0..100 {
        let mut plan = quick.clone();
        plan.group = format!("app-{number}");
        plan.start_timeout = Duration::from_secs(120);
        kit.driver.spawn(plan);
    }
    assert_eq!(kit.driver.machine().under_way(), 101);
    for _ in 0..100 {
        kit.answer().unwrap_or_else(|report| panic!("{}", report.text()));
    }
    assert_eq!(kit.driver.machine().under_way(), 1);
    kit.driver.tell(forkyard_spawn::event::Event::Shutdown);
    let Err(report) = kit.answer() else {
        panic!("it came up");
    };
    assert!(report.failure.summary.contains("called off"));
    kit.stop();
    kit.assert_clean();
}
