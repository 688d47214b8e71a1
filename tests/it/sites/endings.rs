//! SIGQUIT with application pools and ordinary ones.

use super::{Sites, configuration, get};
use crate::support::prelude::*;

const SLOW: &str = "import os, time\ndef application(environ, start):\n    open('begun', 'w').close()\n    \
                    while not os.path.exists('go'):\n        time.sleep(0.01)\n    start('200 OK', [])\n    \
                    return [b'in the end']\n";
const LATER: &str = "def application(environ, start):\n    start('200 OK', [])\n    return [b'even so']\n";

#[test]
fn others_finish_at_once_while_routers_see_to_those_who_wait() {
    let daemon = Daemon::start(|dir| {
        let php = PHP;
        let settings = "pm = \"static\"\nmax_children = 2\n";
        configuration(dir, "max = 1", "") + &pool(dir, "plain", settings, php)
    });
    let mut sites = Sites::before(daemon);
    sites.daemon.write("hello.php", "<?php echo 'hello';");
    assert_eq!(sites.daemon.get("plain", "hello.php").body(), "hello");
    let workers = sites.daemon.wait_for_workers("plain", 2);
    let slow = sites.add("slow", 0, &[("passenger_wsgi.py", SLOW)]);
    sites.add("later", 0, &[("passenger_wsgi.py", LATER)]);
    let port = sites.nginx.port;
    let ask = |path: &'static str| std::thread::spawn(move || get(port, path).expect("answer"));
    let first = ask("/slow/");
    wait_until("the request to run", || slow.join("begun").exists());
    let second = ask("/later/");
    wait_until("the other to wait", || sites.status()["book"]["waiting"] == 1);
    let children = process::children(sites.daemon.pid());

    sites.daemon.signal(Signal::SIGQUIT);
    wait_until("the workers beside the application pool to leave", || {
        let gone = workers.iter().all(|pid| !process::runs(*pid));
        gone && sites.daemon.own_preloaders("plain").is_empty()
    });
    assert!(!first.is_finished() && !second.is_finished());
    let mut refused = sites.daemon.client("plain");
    let asked = refused.send(&Params::get(&sites.daemon.dir, "hello.php", ""), b"");
    asked.expect("the socket is there until the end");
    let output = sites.forkyard(&["reload"]);
    assert_eq!(output.status.code(), Some(70));
    let errors = text_of(&output.stderr);
    assert_contains(&errors, "the daemon is ending");
    assert!(sites.daemon.workers("plain").is_empty());

    fs::write(slow.join("go"), "").expect("go");
    assert_eq!(first.join().expect("client"), (200, "in the end".to_owned()));
    assert_eq!(second.join().expect("client"), (200, "even so".to_owned()));
    let status = sites.daemon.wait();
    assert!(status.success(), "{status}\n{}", sites.daemon.log());
    assert!(!refused.answer().is_ok_and(|answer| answer.ended));
    for child in children {
        assert!(!process::runs(child), "{} is left", process::title(child));
    }
    assert!(!sites.daemon.socket("plain").exists() && !sites.daemon.socket("sites").exists());
}
