//! Applications that boot once: workers are forked in the preloader's first `forkyard_handle_request()`.

mod applications;
mod boots;
mod code;
mod connections;
mod endings;
mod failures;
mod frameworks;
mod generators;
mod isolation;
mod kept;
mod lives;
mod modes;
mod reading;
mod snapshots;
mod soak;
mod states;
mod wordpress;

use crate::support::prelude::*;

const PHP: &str = env!("FORKYARD_PHP");
const STATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/php_worker/state.php");
const ORDINARY: &str = "<?php require_once __DIR__ . '/state.php'; handle();";
const LOOP: &str = "<?php require_once __DIR__ . '/state.php'; while (forkyard_handle_request('handle'));";
const ONE: &str = "pm = \"static\"\nmax_children = 1\n";

fn worker_pool(dir: &Path, name: &str, script: &str, settings: &str, application: &str) -> String {
    let application = format!("worker_mode = \"loop\"\n{application}");
    mode_pool(dir, name, script, settings, &application)
}

fn mode_pool(dir: &Path, name: &str, script: &str, settings: &str, application: &str) -> String {
    let application =
        format!("runtime = \"php\"\nversion = \"{PHP}\"\nworker = \"DIR/{script}\"\n{application}");
    pool(dir, name, settings, &application)
}

fn ordinary_pool(dir: &Path, name: &str, settings: &str, application: &str) -> String {
    let application = format!("runtime = \"php\"\nversion = \"{PHP}\"\n{application}");
    pool(dir, name, settings, &application)
}

fn both(settings: &str, application: &str) -> Daemon {
    Daemon::start(|dir| {
        write_scripts(dir);
        let settings = format!("{ONE}{settings}");
        let snapshot = format!("worker_mode = \"snapshot\"\n{application}");
        ordinary_pool(dir, "www", &settings, application)
            + &worker_pool(dir, "loop", "worker.php", &settings, application)
            + &mode_pool(dir, "snap", "worker.php", &settings, &snapshot)
    })
}

fn write_scripts(dir: &Path) {
    write_script(dir, LOOP);
    fs::write(dir.join("index.php"), ORDINARY).expect("write");
}

fn write_script(dir: &Path, text: &str) {
    fs::copy(STATE, dir.join("state.php")).expect("copy");
    fs::write(dir.join("worker.php"), text).expect("write");
}

fn case(daemon: &Daemon, name: &str, query: &str) -> Params {
    let query = format!("case={}&{query}", name.replace(' ', "%20"));
    Params::get(&daemon.dir, "index.php", query.trim_end_matches('&'))
}

fn ask(daemon: &Daemon, pool: &str, params: &Params, body: &[u8]) -> Answer {
    daemon.client(pool).request(params, body).expect("answer")
}

fn say(daemon: &Daemon, pool: &str, name: &str, query: &str) -> String {
    ask(daemon, pool, &case(daemon, name, query), b"").body()
}

fn post(params: Params, content_type: &str, body: &str) -> Params {
    params
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_TYPE", content_type)
        .with("CONTENT_LENGTH", &body.len().to_string())
}

fn status(daemon: &Daemon, arguments: &[&str]) -> String {
    let mut command = daemon.at_socket(&[&["status"], arguments].concat());
    let output = command.output().expect("forkyard");
    assert_success(&output);
    text_of(&output.stdout)
}

fn status_of(daemon: &Daemon, pool: &str) -> Value {
    let status: Value = serde_json::from_str(&status(daemon, &[pool, "--json"])).expect("JSON");
    status["pools"][0].clone()
}
