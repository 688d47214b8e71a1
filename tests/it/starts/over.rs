//! A repaired pool: the next try succeeds, and the status shows the error as past.

use super::WELL_WSGI;
use crate::support::prelude::*;

fn status(daemon: &Daemon) -> (Value, String) {
    let value = daemon.status(&[]);
    (
        value["pools"][0]["last_error"].clone(),
        daemon.shown(&["status", "www"]),
    )
}

#[test]
fn a_virtual_environment_that_is_made_after_a_failed_start_is_used() {
    for (pm, is_link) in [("static", false), ("ondemand", false), ("ondemand", true)] {
        let root = directory();
        let code = format!("import only_there\n{WELL_WSGI}");
        fs::write(root.path().join("wsgi.py"), code).expect("write");
        let application = application_in("wsgi", root.path(), "");
        let daemon = Daemon::start(|dir| {
            let global = with_control(dir);
            let pm = format!("pm = \"{pm}\"\nmax_children = 1\n");
            global + &pool(dir, "www", &pm, &application)
        });
        let ask = || daemon.get("www", "x").text();
        wait_until("a refusal", || ask().starts_with("Status: 503 "));
        let (error, shown) = status(&daemon);
        assert_has(&error, json!({"refusing": true, "is_over": false}));
        assert_contains(&shown, " ago, requests are refused: ");
        let place = match is_link {
            true => daemon.dir.join("environment"),
            false => root.path().join(".venv"),
        };
        let mut python = Command::new("/usr/bin/python3");
        let made = python.args(["-m", "venv", "--without-pip"]).arg(&place).status();
        assert!(made.expect("python3").success());
        let libraries = fs::read_dir(place.join("lib")).expect("lib").next();
        let libraries = libraries.expect("python3.x").expect("an entry").path();
        fs::write(libraries.join("site-packages/only_there.py"), "").expect("write");
        if is_link {
            symlink(&place, root.path().join(".venv")).expect("symlink");
        }
        wait_until("an answer", || ask().ends_with("well"));
        let (error, shown) = status(&daemon);
        assert_has(&error, json!({"refusing": false, "is_over": true}));
        assert_contains(&shown, " ago, over: the pool serves: ");
    }
}
