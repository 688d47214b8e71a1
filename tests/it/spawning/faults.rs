//! Applications that do everything wrong.

use super::{Kit, SHORT, UP};
use crate::support::prelude::*;
use forkyard_spawn::error::Category;
use forkyard_spawn::plan::Limit;
use forkyard_spawn::step::Step;

const STEPS: [(&str, Step); 3] = [
    ("subprocess_app_load_or_exec", Step::SubprocessAppLoadOrExec),
    ("subprocess_listen", Step::SubprocessListen),
    ("subprocess_finish", Step::SubprocessFinish),
];

fn reports(upto: usize) -> String {
    let mut script = "cd \"$FORKYARD_SPAWN_WORK_DIR/response/steps\"\n".to_owned();
    for (place, (name, _)) in STEPS.iter().enumerate().take(upto + 1) {
        let state = if place == upto {
            "STEP_IN_PROGRESS"
        } else {
            "STEP_PERFORMED"
        };
        script.push_str(&format!("printf {state} > {name}/state\n"));
    }
    script
}

#[test]
fn it_exits_at_each_step() {
    for (place, (_, step)) in STEPS.iter().enumerate() {
        let mut kit = Kit::new();
        let report = kit.failure(kit.native(&format!("{}\necho gone; exit 3", reports(place))));
        assert_eq!(report.failure.category, Category::Internal);
        assert_eq!(report.failure.step, *step);
        assert_eq!(
            report.exit.map(|ended| ended.describe()).as_deref(),
            Some("exited with code 3")
        );
        assert!(report.output.contains("gone"));
    }
}

#[test]
fn it_hangs_at_each_step() {
    for (place, (name, _)) in STEPS.iter().enumerate() {
        let mut kit = Kit::new();
        let mut plan = kit.native(&format!("{}\nsleep 1000", reports(place)));
        plan.start_timeout = SHORT;
        let report = kit.failure(plan);
        assert_eq!(report.failure.category, Category::Timeout);
        let problem = report.failure.problem.as_str();
        assert!(problem.contains(&name.to_uppercase()), "{problem}");
    }
}

#[test]
fn it_ends_right_after_an_answer() {
    let mut kit = Kit::new();
    let report = kit.failure(kit.native("printf 0 > \"$FORKYARD_SPAWN_WORK_DIR/response/finish\""));
    assert_contains(&report.failure.summary, "reported that it failed");
    let mut kit = Kit::new();
    kit.up(kit.native(&UP.replace("cat > /dev/null", "exec cat > /dev/null")));
}

#[test]
fn it_opens_finish_and_says_nothing() {
    let mut kit = Kit::new();
    let script = ": > \"$FORKYARD_SPAWN_WORK_DIR/response/finish\"; cat > /dev/null";
    let report = kit.failure(kit.native(script));
    assert_contains(report.failure.problem.as_str(), "without writing a byte");
}

#[test]
fn it_writes_garbage_to_each_file() {
    let garbage = "head -c 300000 /dev/urandom > ";
    for (file, said) in [
        ("properties.json", "longer than 32768 bytes"),
        ("steps/subprocess_listen/state", "which is no state"),
        ("steps/subprocess_listen/begin_time", ""),
        ("steps/subprocess_listen/end_time_monotonic", ""),
    ] {
        let mut kit = Kit::new();
        let script = UP.replace(
            "printf 1 >",
            &format!("{garbage} \"$work/response/{file}\"\nprintf 1 >"),
        );
        let plan = kit.native(&script);
        if said.is_empty() {
            kit.up(plan);
            continue;
        }
        let report = kit.failure(plan);
        let problem = report.failure.problem.as_str();
        assert!(problem.contains(said), "{file}: {problem}");
    }
    for (file, said) in [
        ("category", "which is no category"),
        ("summary", ""),
        ("problem_description.html", ""),
        ("problem_description.txt", ""),
        ("solution_description.html", ""),
        ("solution_description.txt", ""),
        ("advanced_problem_details", ""),
    ] {
        let mut kit = Kit::new();
        let script = format!(
            "cd \"$FORKYARD_SPAWN_WORK_DIR/response\"\n{garbage} error/{file}\nprintf 0 > finish\ncat > /dev/null"
        );
        let report = kit.failure(kit.native(&script));
        assert!(report.failure.problem.as_str().contains(said), "{file}");
        assert!(!report.line().contains('\n') && report.html().contains("</html>"));
        assert!(report.text().len() < 3_000_000);
    }
    let mut kit = Kit::new();
    let script = UP.replace(
        "printf 1 >",
        "printf '{\"sockets\":' > \"$work/response/properties.json\"\nprintf 1 >",
    );
    let report = kit.failure(kit.native(&script));
    assert!(report.failure.problem.as_str().contains("is not valid JSON"));
}

#[test]
fn it_plants_links_and_fifos() {
    let mut kit = Kit::new();
    fs::write(kit.root().join("secret"), "hunter2").expect("a file");
    let secret = kit.root().join("secret").display().to_string();
    let script = format!(
        "cd \"$FORKYARD_SPAWN_WORK_DIR/response\"\nln -s {secret} error/summary\nmkfifo error/problem_description.txt\n\
         mv steps gone\nln -s / steps\nln -sf {secret} ../envdump/user_info\nln {secret} ../envdump/ulimits.link\n\
         ln -s {secret} ../envdump/annotations/link\nln -s {secret} properties.json\nprintf 0 > finish\ncat > /dev/null"
    );
    let report = kit.failure(kit.native(&script));
    assert!(!report.json(0).to_string().contains("hunter2"));
    assert!(kit.root().join("secret").exists());
    let mut kit = Kit::new();
    let script = UP.replace(
        "printf 1 >",
        "mv \"$work/response/properties.json\" \"$work/real\"\nln -s ../real \"$work/response/properties.json\"\nprintf 1 >",
    );
    let report = kit.failure(kit.native(&script));
    assert!(report.failure.problem.as_str().contains("There is no file"));
}

#[test]
fn it_fills_its_output() {
    let mut kit = Kit::new();
    let report =
        kit.failure(kit.native("echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo last; exit 1"));
    assert!(report.output.starts_with("first") && report.output.trim_end().ends_with("last"));
    assert!(report.output.len() < 200_000);
    assert!(report.output.contains("bytes left out"));
}

#[test]
fn it_closes_what_it_was_given() {
    let mut kit = Kit::new();
    let script = UP.replace("printf 1 >", "exec <&- >&- 2>&-\nprintf 1 >");
    let up = kit.up(kit.native(&script.replace("cat > /dev/null", "exec sleep 1000")));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(up.pid), Signal::SIGKILL).expect("it lives");
}

#[test]
fn it_removes_its_work_directory() {
    let mut kit = Kit::new();
    let report = kit.failure(kit.native("rm -rf \"$FORKYARD_SPAWN_WORK_DIR\"; exit 4"));
    assert_eq!(
        report.exit.map(|ended| ended.describe()).as_deref(),
        Some("exited with code 4")
    );
    let mut kit = Kit::new();
    let mut plan = kit.native("rm -rf \"$FORKYARD_SPAWN_WORK_DIR\"; sleep 1000");
    plan.start_timeout = SHORT;
    assert_eq!(kit.failure(plan).failure.category, Category::Timeout);
}

#[test]
fn it_leaves_a_work_directory_that_can_hardly_be_removed() {
    let mut kit = Kit::new();
    let script =
        "cd \"$FORKYARD_SPAWN_WORK_DIR\"\nmkdir -p a/b/c\ntouch a/b/c/d\nchmod 000 a/b/c a/b\nexit 1";
    kit.failure(kit.native(script));
}

#[test]
fn it_is_killed_by_a_limit() {
    let mut kit = Kit::new();
    let mut plan = kit.native("while :; do :; done");
    plan.limits.push(Limit {
        name: "cpu".to_owned(),
        soft: Some(1),
        hard: Some(5),
    });
    let report = kit.failure(plan);
    let exit = report.exit.map(|ended| ended.describe()).unwrap_or_default();
    assert_contains(&exit, "SIGXCPU");
    assert!(report.failure.problem.as_str().contains("CPU time"));
    let mut kit = Kit::new();
    let report = kit.failure(kit.native("kill -9 $$"));
    assert_eq!(
        report.exit.map(|ended| ended.describe()).as_deref(),
        Some("was killed by signal 9 (SIGKILL)")
    );
}

#[test]
fn it_listens_on_the_wrong_port() {
    let mut kit = Kit::new();
    let mut plan = kit.generic("/usr/bin/python3 -m http.server --bind 127.0.0.1 0");
    plan.start_timeout = SHORT * 2;
    let report = kit.failure(plan);
    assert_eq!(report.failure.category, Category::Timeout);
    assert!(report.failure.solution.as_str().contains("$PORT"));
}

#[test]
fn somebody_else_who_listens_on_its_port_is_not_taken_for_it() {
    let mut kit = Kit::new();
    let work = kit.scratch.path().join("work");
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let thief = std::thread::spawn(move || {
        let port = until("the arguments", || {
            let entry = fs::read_dir(&work).ok()?.find_map(Result::ok)?;
            let text = fs::read_to_string(entry.path().join("args/expected_start_port")).ok()?;
            text.parse::<u16>().ok()
        });
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port");
        let _ = told.recv();
        drop(listener);
    });
    let plan = kit.generic("sleep 1; exec /usr/bin/python3 -m http.server --bind 127.0.0.1 $PORT");
    let mut plan = plan;
    plan.start_command =
        "/bin/sh -c 'sleep 1; exec /usr/bin/python3 -m http.server --bind 127.0.0.1 $PORT'".to_owned();
    let up = kit.up(plan);
    tell.send(()).expect("the thief waits");
    thief.join().expect("the thief ends");
    assert!(
        kit.logged
            .borrow()
            .windows(22)
            .any(|part| part == b"Address already in use")
    );
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(up.pid), Signal::SIGTERM).expect("it lives");
}

#[test]
fn a_command_that_can_not_be_executed_is_explained() {
    let rows = [
        ("./missing", "there is no file"),
        ("no-such-program-anywhere", "in PATH"),
        ("./plain", "not executable"),
        ("./lost", "interpreter /nowhere/ruby"),
    ];
    each(rows, |(command, said)| {
        let mut kit = Kit::new();
        fs::write(kit.root().join("plain"), "#!/bin/sh\n").expect("a file");
        write_program(&kit.root().join("lost"), "#!/nowhere/ruby\n");
        let report = kit.failure(kit.generic(command));
        assert_contains(&report.failure.summary, said);
        assert_eq!(report.failure.category, Category::OperatingSystem);
        assert_eq!(report.failure.step, Step::SubprocessAppLoadOrExec);
    });
}
