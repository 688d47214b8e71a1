//! `forkyard restart` for pools of one application: by name and by directory, with an outcome.

use crate::support::prelude::*;

const OLD: &str =
    "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [b'old']\n";

fn configure(dir: &Path) -> String {
    let application = dir.join("app");
    fs::create_dir_all(&application).expect("app");
    fs::write(application.join("app.py"), OLD).expect("app.py");
    let text = application_in("wsgi", application, "");
    with_control(dir)
        + &pool(dir, "shop", "pm = \"static\"\nmax_children = 2\n", &text)
        + &pool(dir, "other", "", PHP)
}

fn start() -> Daemon {
    let daemon = Daemon::start(configure);
    daemon.wait_for_workers("shop", 2);
    daemon.wait_for_workers("other", 1);
    daemon
}

fn body(daemon: &Daemon) -> String {
    let params = Params::get(&daemon.dir, "x", "");
    let answer = daemon.client("shop").request(&params, b"");
    answer.expect("answer").body().to_owned()
}

fn restart(daemon: &Daemon, arguments: &[&str]) -> (i32, String) {
    let (code, text) = daemon.said(&[&["restart"], arguments].concat());
    (code.unwrap_or(-1), text)
}

#[test]
fn a_pool_of_one_application_is_restarted_by_its_name_and_by_its_directory() {
    let daemon = start();
    let other = daemon.workers("other");
    let directory = daemon.dir.join("app");
    for (index, what) in ["shop", &directory.display().to_string()].into_iter().enumerate() {
        let before = daemon.workers("shop");
        write_file(
            directory.join("app.py"),
            OLD.replace("old", &format!("new{index}")),
        );
        let text = exited(0, restart(&daemon, &["--wait", what]));
        assert_contains(&text, "is restarted: the new processes serve");
        assert_eq!(body(&daemon), format!("new{index}"));
        assert!(
            daemon.workers("shop").iter().all(|pid| !before.contains(pid)),
            "{text}"
        );
    }
    assert_eq!(daemon.workers("other"), other, "another pool goes on");
    let (code, text) = restart(&daemon, &["shop"]);
    assert_eq!((code, &*text), (0, "pool shop gets new processes\n"));
    for nothing in ["nothing", "/nowhere"] {
        let (code, text) = restart(&daemon, &[nothing]);
        assert!(code != 0 && !text.contains('{'), "{text}");
    }
}

#[test]
fn new_code_that_does_not_start_is_told_and_the_old_goes_on() {
    let daemon = start();
    fs::write(daemon.dir.join("app/app.py"), "import nowhere_to_be_found\n").expect("app.py");
    let text = exited(70, restart(&daemon, &["--wait", "shop"]));
    assert_contains(&text, "failed shop: no new worker came up");
    assert_eq!(body(&daemon), "old");
}

#[test]
fn an_owner_restarts_the_own_pool_and_reads_its_errors() {
    skip_if!(needs_root());
    const OWNER: u32 = 33;
    const STRANGER: u32 = 34;
    let daemon = start();
    let ask = |uid: u32, arguments: &[&str]| {
        let mut command = forkyard(arguments, &daemon.dir);
        command.uid(uid).gid(uid);
        let (code, text) = said_by(&mut command);
        (code.unwrap_or(-1), text)
    };
    chown(daemon.dir.join("app/app.py"), Some(OWNER), Some(OWNER)).expect("chown");
    fs::set_permissions(&daemon.dir, fs::Permissions::from_mode(0o755)).expect("chmod");
    exited(0, ask(OWNER, &["restart", "--wait", "shop"]));
    let (code, text) = ask(STRANGER, &["restart", "--wait", "shop"]);
    assert!(code != 0 && text.contains("permission denied"), "{text}");
    fs::write(daemon.dir.join("app/app.py"), "import nowhere_to_be_found\n").expect("app.py");
    let (code, _) = ask(OWNER, &["restart", "--wait", "shop"]);
    assert_eq!(code, 70);
    let report = until("the report", || {
        let (code, text) = ask(OWNER, &["error"]);
        (code == 0).then_some(text)
    });
    assert_contains(&report, "nowhere_to_be_found");
    let (code, text) = ask(STRANGER, &["error"]);
    assert!(code != 0 && !text.contains("nowhere_to_be_found"), "{text}");
}
