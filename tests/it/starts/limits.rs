//! The daemon's end and its renewal while something is being started.

use super::{Broken, WELL_WSGI};
use crate::support::prelude::*;

const HANGS: &str = "import time\nwhile True: time.sleep(1)\n";

fn starts(broken: &Broken) -> u32 {
    let params = Params::get(&broken.daemon.dir, "x", "");
    let _client = broken.daemon.send("www", &params);
    until("a preloader that loads", || {
        broken
            .daemon
            .preloaders("www")
            .first()
            .copied()
            .filter(|_| !super::work_directories(&broken.temporary).is_empty())
    })
}

#[test]
fn a_daemon_that_ends_leaves_nothing_of_a_start() {
    for signal in [Signal::SIGTERM, Signal::SIGQUIT] {
        let mut broken = Broken::start("wsgi", "wsgi.py", HANGS, "", "");
        let pid = starts(&broken);
        broken.daemon.signal(signal);
        assert!(broken.daemon.wait().success());
        assert!(!process::runs(pid), "{signal}");
        let left = fs::read_dir(&broken.temporary).expect("the directory").count();
        assert_eq!(left, 0, "{signal}");
    }
}

#[test]
fn a_reload_calls_a_start_off() {
    let broken = Broken::start("wsgi", "wsgi.py", HANGS, "", "");
    let pid = starts(&broken);
    fs::write(broken.root.path().join("wsgi.py"), WELL_WSGI).expect("write");
    let config = broken.daemon.dir.join("forkyard.toml");
    let text = read_file(&config);
    fs::write(&config, text.replace("max_children = 2", "max_children = 3")).expect("write");
    broken.daemon.signal(Signal::SIGUSR2);
    wait_until("the old preloader to be gone", || !process::runs(pid));
    wait_until("an answer", || broken.ask().body() == "well");
    assert_lacks(&broken.daemon.log(), "can't start");
    broken.is_clean();
}
