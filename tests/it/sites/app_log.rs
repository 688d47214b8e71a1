//! An application's own log, owned by the application's owner.

use super::{Sites, USERS};
use crate::support::prelude::*;

const FAILING: &str = "def application(environ, start_response):\n    raise ValueError('it broke')\n";

#[test]
fn an_application_s_log_is_its_owner_s() {
    let sites = Sites::start("");
    let settings = "app_log = \"tmp/app.log\"\n";
    let place = sites.add(
        "shop",
        1,
        &[("passenger_wsgi.py", FAILING), ("forkyard.toml", settings)],
    );
    assert_eq!(sites.get("/shop").0, 500);
    let text = until("the log", || {
        let text = fs::read_to_string(place.join("tmp/app.log")).ok()?;
        text.contains("ValueError: it broke\n").then_some(text)
    });
    assert_starts(&text, "Traceback (most recent call last):\n  File ");
    assert_lacks(&sites.daemon.log(), "it broke");
    let data = fs::metadata(place.join("tmp/app.log")).expect("the log");
    let owner = if is_root() {
        USERS[1].1
    } else {
        nix::unistd::Uid::current().as_raw()
    };
    assert_eq!((data.uid(), data.mode() & 0o777), (owner, 0o600));
    fs::rename(place.join("tmp/app.log"), place.join("tmp/old.log")).expect("rename");
    sites.daemon.signal(Signal::SIGUSR1);
    sites.daemon.wait_for("application log file re-opened");
    sites.get("/shop");
    until("the new log", || {
        let text = fs::read_to_string(place.join("tmp/app.log")).ok()?;
        text.contains("ValueError: it broke\n").then_some(())
    });
}

/// Even as root, the daemon never writes to another user's file, whatever links the owner makes.
#[test]
fn nothing_of_another_user_is_written_to_as_an_application_s_log() {
    skip_if!(needs_root());
    let sites = Sites::start("");
    let precious = sites.daemon.write("precious", "precious\n");
    let settings = "app_log = \"tmp/app.log\"\n";
    let files = [("passenger_wsgi.py", FAILING), ("forkyard.toml", settings)];
    for (name, is_soft) in [("soft", true), ("hard", false)] {
        let place = sites.add(name, 1, &files);
        let log = place.join("tmp/app.log");
        match is_soft {
            true => symlink(&precious, &log).expect("symlink"),
            false => fs::hard_link(&precious, &log).expect("link"),
        }
        assert_eq!(sites.get(&format!("/{name}")).0, 500);
        let line = sites.daemon.wait_for(&format!("{name}/tmp/app.log"));
        assert_contains(&line, "[pool sites:");
        assert_contains(&line, "the daemon's log");
    }
    let place = sites.add("way", 1, &files);
    fs::remove_dir(place.join("tmp")).expect("tmp");
    fs::create_dir(sites.daemon.dir.join("closed")).expect("closed");
    symlink(sites.daemon.dir.join("closed"), place.join("tmp")).expect("symlink");
    assert_eq!(sites.get("/way").0, 500);
    sites.daemon.wait_for("way/tmp/app.log");
    assert!(!sites.daemon.dir.join("closed/app.log").exists());
    assert_eq!(read_file(&precious), "precious\n");
    sites.daemon.wait_for_count("ValueError: it broke", 3);
}

#[test]
fn a_lifespan_that_fails_has_a_report() {
    let sites = Sites::start("");
    let source = "async def app(scope, receive, send):\n    if scope['type'] == 'lifespan':\n        await receive()\n        \
                  await send({'type': 'lifespan.startup.failed', 'message': 'no database'})\n";
    let settings = "runtime = \"asgi\"\nentry = \"main:app\"\n";
    sites.add("shop", 1, &[("main.py", source), ("forkyard.toml", settings)]);
    let body = exited(503, sites.get("/shop"));
    let id = body.split("Error ID: ").nth(1).expect("an id");
    let id: String = id.chars().take_while(char::is_ascii_hexdigit).collect();
    let report = text_of(&sites.forkyard(&["error", &id]).stdout);
    assert!(
        report.contains("the application's start failed: no database"),
        "{body}: {report}"
    );
}
