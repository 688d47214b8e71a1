//! Programs that misbehave during their start: each causes the right error and leaks nothing.
//! (`tests/it/spawning/faults.rs` has more.)

use super::{Broken, descriptors};
use crate::support::prelude::*;

pub(super) const WELL: &str = r#"
import json, os, socket, sys, threading
server = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", 0))), backlog=128)
if "PORT" not in os.environ:
    response = os.environ["FORKYARD_SPAWN_WORK_DIR"] + "/response"
    sockets = [{"address": "tcp://127.0.0.1:%d" % server.getsockname()[1], "protocol": "http", "concurrency": 1,
                "accept_http_requests": True}]
    with open(response + "/properties.json", "w") as file:
        json.dump({"sockets": sockets}, file)
    with open(response + "/finish", "w") as file:
        file.write("1")
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    client, _ = server.accept()
    if client.recv(65536):
        client.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nwell")
    client.close()
"#;

const HEALED: &str = "exec python3 well.py\n";
const UP: &str = "printf '{\"sockets\":[{\"address\":\"tcp://127.0.0.1:9\",\"protocol\":\"http\",\"concurrency\":1,\
                  \"accept_http_requests\":true}]}' > properties.json\n";

struct Fault {
    native: bool,
    script: String,
    hangs: bool,
    category: &'static str,
    step: &'static str,
    said: &'static str,
}

const INTERNAL: &str = "INTERNAL_ERROR";
const TIMEOUT: &str = "TIMEOUT_ERROR";
const HANDSHAKE: &str = "SPAWNING_KIT_HANDSHAKE_PERFORM";
const LOAD: &str = "SUBPROCESS_APP_LOAD_OR_EXEC";

impl Fault {
    fn native(script: &str, category: &'static str, step: &'static str, said: &'static str) -> Fault {
        let script = format!("cd \"$FORKYARD_SPAWN_WORK_DIR/response\"\n{script}\n");
        Fault {
            native: true,
            script,
            hangs: category == TIMEOUT,
            category,
            step,
            said,
        }
    }

    fn run(&self) {
        let timeout = if self.hangs { "2s" } else { "30s" };
        let application = format!(
            "start_command = \"/bin/sh ./app.sh\"\nstart_timeout = \"{timeout}\"\nhandshake = {}\n",
            self.native
        );
        let broken = Broken::start("http", "app.sh", &self.script, "", &application);
        fs::write(broken.root.path().join("well.py"), WELL).expect("write");
        let id = broken.refused();
        let report = broken.report(&id);
        let error = &report["error"];
        assert_eq!(error["category"], self.category, "{}{report:#}", self.script);
        assert_eq!(error["step"], self.step, "{}{report:#}", self.script);
        assert!(error.to_string().contains(self.said), "{}{report:#}", self.script);
        assert_eq!(
            report["diagnostics"]["subprocess"]["processes_left"], 0,
            "{report:#}"
        );
        assert_sound(&broken);
    }
}

fn assert_sound(broken: &Broken) {
    fs::write(broken.root.path().join("app.sh"), HEALED).expect("write");
    wait_until("the pool to heal", || broken.ask().body() == "well");
    wait_until("no work directory", || {
        super::work_directories(&broken.temporary).is_empty()
    });
    let pid = broken.daemon.pid();
    wait_until("workers and the program", || {
        let children = process::children(pid);
        let others: Vec<u32> = children
            .into_iter()
            .filter(|child| !process::title(*child).contains("pool www"))
            .collect();
        let is_program = |child: &u32| process::title(*child).contains("well.py");
        others.len() == 1 && others.iter().all(is_program)
    });
    let workers = broken.daemon.workers("www").len();
    wait_until("no descriptor of a start", || {
        descriptors(pid) == broken.descriptors + OF_A_POOL_THAT_RUNS + workers * OF_A_WORKER
    });
}

const OF_A_POOL_THAT_RUNS: usize = 10;
const OF_A_WORKER: usize = 3;

fn run_all(faults: &[Fault]) {
    const AT_ONCE: usize = 3;
    std::thread::scope(|scope| {
        for start in 0..AT_ONCE {
            scope.spawn(move || faults.iter().skip(start).step_by(AT_ONCE).for_each(Fault::run));
        }
    });
}

#[test]
fn one_that_is_well_has_as_much_as_is_expected() {
    let application = "start_command = \"/bin/sh ./app.sh\"\nhandshake = true\n";
    let broken = Broken::start("http", "app.sh", HEALED, "", application);
    fs::write(broken.root.path().join("well.py"), WELL).expect("write");
    assert_sound(&broken);
}

#[test]
fn programs_that_exit_or_hang_at_each_step() {
    let steps = [
        "subprocess_app_load_or_exec",
        "subprocess_listen",
        "subprocess_finish",
    ];
    let mut faults = Vec::new();
    for (place, step) in [LOAD, "SUBPROCESS_LISTEN", "SUBPROCESS_FINISH"]
        .into_iter()
        .enumerate()
    {
        let done = steps[..place]
            .iter()
            .map(|name| format!("printf STEP_PERFORMED > steps/{name}/state\n"));
        let done: String = done.collect();
        let script = format!("{done}printf STEP_IN_PROGRESS > steps/{}/state\n", steps[place]);
        let exits = format!("{script}echo gone; exit 3");
        faults.push(Fault::native(&exits, INTERNAL, step, "exited with code 3"));
        let killed = format!("{script}kill -9 $$");
        faults.push(Fault::native(&killed, INTERNAL, step, "signal 9 (SIGKILL)"));
        faults.push(Fault::native(
            &format!("{script}sleep 1000"),
            TIMEOUT,
            HANDSHAKE,
            step,
        ));
    }
    let at_once = Fault {
        native: false,
        ..Fault::native("exit 7", INTERNAL, LOAD, "exited with code 7")
    };
    faults.push(at_once);
    let after = format!("{UP}sleep 1000");
    faults.push(Fault::native(&after, TIMEOUT, HANDSHAKE, "took longer than 2 s"));
    run_all(&faults);
}

#[test]
fn programs_that_write_garbage() {
    const GARBAGE: &str = "head -c 300000 /dev/urandom > ";
    let mut faults = Vec::new();
    for (file, said) in [
        ("properties.json", "longer than 32768 bytes"),
        ("steps/subprocess_listen/state", "which is no state"),
    ] {
        let script = format!("{UP}{GARBAGE}{file}\nprintf 1 > finish\ncat > /dev/null");
        let step = if file == "properties.json" {
            LOAD
        } else {
            "SUBPROCESS_LISTEN"
        };
        faults.push(Fault::native(&script, INTERNAL, step, said));
    }
    for (file, said) in [
        ("category", "which is no category"),
        ("summary", ""),
        ("problem_description.txt", ""),
        ("solution_description.html", ""),
        ("advanced_problem_details", ""),
    ] {
        let script = format!("{GARBAGE}error/{file}\nprintf 0 > finish\ncat > /dev/null");
        faults.push(Fault::native(&script, INTERNAL, LOAD, said));
    }
    let texts = "printf '\\300\\033[2J' > properties.json; printf 1 > finish; cat > /dev/null";
    faults.push(Fault::native(texts, INTERNAL, LOAD, "is not valid JSON"));
    let finish = format!("{UP}printf '\\377\\000garbage' > finish\ncat > /dev/null");
    faults.push(Fault::native(&finish, INTERNAL, LOAD, "reported that it failed"));
    let much = format!("{UP}(printf x; head -c 300000 /dev/zero) > finish\ncat > /dev/null");
    faults.push(Fault::native(&much, INTERNAL, LOAD, "reported that it failed"));
    run_all(&faults);
}

#[test]
fn programs_that_spoil_their_surroundings() {
    let wrong_port = Fault {
        native: false,
        script: "exec python3 -m http.server --bind 127.0.0.1 0".to_owned(),
        ..Fault::native("", TIMEOUT, HANDSHAKE, "$PORT")
    };
    let forks = "sleep 1000 & setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & exit 0";
    run_all(&[
        wrong_port,
        Fault::native(forks, INTERNAL, LOAD, "goes to the background"),
        Fault::native(
            "head -c 30000000 /dev/zero | tr '\\0' x; echo last; exit 1",
            INTERNAL,
            LOAD,
            "exited with code 1",
        ),
        Fault::native("exec <&-; exit 5", INTERNAL, LOAD, "exited with code 5"),
        Fault::native(
            "exec <&- >&- 2>&-; exec sleep 1000",
            TIMEOUT,
            HANDSHAKE,
            "took longer than 2 s",
        ),
        Fault::native(
            "rm -rf \"$FORKYARD_SPAWN_WORK_DIR\"; exit 4",
            INTERNAL,
            "SUBPROCESS_BEFORE_FIRST_EXEC",
            "exited with code 4",
        ),
        Fault::native(
            "rm -rf \"$FORKYARD_SPAWN_WORK_DIR\"; exec sleep 1000",
            TIMEOUT,
            HANDSHAKE,
            "took longer than 2 s",
        ),
    ]);
}
