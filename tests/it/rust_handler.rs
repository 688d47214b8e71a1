//! Programs that link forkyard: `examples/responder.rs`, which has a handler for the pool `hello`.

use crate::support::prelude::*;

fn programs() -> &'static Path {
    let daemon = Path::new(env!("CARGO_BIN_EXE_forkyard"));
    daemon.parent().expect("a folder")
}

/// The command of an example, with the file of a directory.
pub(super) fn example(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(programs().join("examples").join(name));
    command.arg(dir.join("forkyard.toml"));
    command
}

fn run(dir: &Path, text: &str) -> Output {
    write_file(dir.join("forkyard.toml"), text);
    let mut command = example("responder", dir);
    command.stdin(Stdio::null()).output().expect("the example")
}

#[test]
fn a_mistake_in_the_file_is_shown_as_text() {
    let dir = directory();
    let text = pool(dir.path(), "hello", "pm = \"statik\"\n", "runtime = \"rust\"\n");
    let output = run(dir.path(), &text);
    let said = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_starts(&said, "Error: ");
    assert_contains(&said, "forkyard.toml:");
    assert_contains(&said, "pool hello");
    assert_contains(&said, "\"static\"");
    assert_lacks(&said, "Configuration(");
}

#[test]
fn a_pool_without_a_handler_and_a_handler_without_a_pool_are_named() {
    let dir = directory();
    let output = run(dir.path(), &pool(dir.path(), "helo", "", "runtime = \"rust\"\n"));
    let said = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let missing = "[pool helo] runtime = \"rust\": this program has no handler of that pool's name";
    assert_contains(&said, &format!("Error: {missing}"));
    let unused = "there is a handler for [pool hello], but no such pool with runtime = \"rust\"";
    assert!(said.contains(unused), "{said}");
}

#[test]
fn a_handler_that_hoards_memory_or_panics_is_followed_by_another_worker() {
    let settings = "memory_limit = \"100M\"\ncatch_workers_output = true\n";
    let configure = |dir: &Path| pool(dir, "rust-good", settings, "runtime = \"rust\"\n");
    let daemon = Daemon::start_by(configure, |dir| example("handlers", dir));
    let ask = |query: &str| daemon.get("rust-good", &format!("x?{query}"));
    let pid = |query: &str| {
        let answer = ask(query);
        let pid = answer
            .body()
            .strip_prefix("pid=")
            .and_then(|pid| pid.parse::<u32>().ok());
        pid.unwrap_or_else(|| panic!("{}", answer.text()))
    };
    let first = pid("");
    let second = until("another worker", || {
        let pid = pid("hoard");
        (pid != first).then_some(pid)
    });
    daemon.wait_for("a worker is replaced: it uses");
    assert_ne!(second, first);
    assert!(!ask("panic").ended, "there is no answer");
    daemon.wait_for("it was asked to");
    daemon.wait_for("exited on signal 6");
    assert_ne!(pid(""), second);
}

#[test]
fn status_at_its_own_address_is_served_by_forkyard_from_the_path() {
    let settings = "status_path = \"/status\"\nstatus_listen = \"DIR/status.sock\"\n";
    let configure = |dir: &Path| pool(dir, "hello", settings, "runtime = \"rust\"\n");
    let daemon = Daemon::start_by(configure, |dir| {
        let known = std::env::var_os("PATH").unwrap_or_default();
        let places = std::iter::once(programs().to_owned()).chain(std::env::split_paths(&known));
        let mut command = example("responder", dir);
        command.env("PATH", std::env::join_paths(places).expect("a path"));
        command
    });
    let mut client = Client::connect(&daemon.socket("status")).expect("connect");
    let params = Params::get(Path::new("/"), "status", "").with("SCRIPT_NAME", "/status");
    let answer = client.request(&params, b"").expect("answer").body();
    assert_contains(&answer, "pool:                 hello");
    assert_contains(&answer, "active processes:     0");
}
