//! Many applications get requests at once, with room for all.

use super::{Sites, get};
use crate::support::prelude::*;

const APPLICATIONS: usize = 100;

/// Starts a child, prints both pids, and doesn't finish loading until a file orders it to exit.
const HUNG: &str = "import os, subprocess, time\nchild = subprocess.Popen(['sleep', '1000'])\n\
                    with open('.pids', 'w') as file:\n    file.write(f'{os.getpid()} {child.pid}')\nos.rename('.pids', 'pids')\n\
                    while not os.path.exists('end'): time.sleep(0.01)\nraise SystemExit('it was told to end')\n";

#[test]
fn of_a_hundred_applications_that_start_at_once_one_that_hangs_delays_none() {
    let sites = Sites::start("max = 100\nmax_spawning = 100");
    let root = sites.add("hung", 0, &[("passenger_wsgi.py", HUNG)]);
    for at in 1..APPLICATIONS {
        sites.cgi(&format!("app{at}"), at, &format!("echo app{at}"));
    }
    let port = sites.nginx.port;
    let hung = std::thread::spawn(move || get(port, "/hung/").expect("answer"));
    let others: Vec<_> = (1..APPLICATIONS)
        .map(|at| std::thread::spawn(move || (at, get(port, &format!("/app{at}/")))))
        .collect();
    for other in others {
        let (at, answer) = other.join().expect("client");
        assert_eq!(answer.expect("answer"), (200, format!("app{at}\n")));
    }
    assert!(!hung.is_finished(), "all others were faster");
    let instances = sites.instances().len();
    assert_eq!(instances, APPLICATIONS - 1, "each has an instance");
    let pids = until("the hung one", || fs::read_to_string(root.join("pids")).ok());
    fs::write(root.join("end"), "").expect("write");
    let (status, body) = hung.join().expect("client");
    assert_eq!(status, 503, "{body}");
    let id = body.trim().rsplit(' ').next().expect("an id").to_owned();
    let line = sites.daemon.wait_for(&id);
    assert!(line.contains("sites:hung") || line.contains("/hung"), "{line}");
    let status = sites.status();
    let errors = status["errors"].as_array().expect("errors");
    assert!(
        errors.iter().any(|error| error["id"] == id.as_str()),
        "{id}: {status}"
    );
    for pid in pids.split(' ') {
        let pid = pid.parse().expect("a process id");
        wait_until("its end", || !process::runs(pid));
    }
    assert_eq!(status["starting"].as_array().map(Vec::len), Some(0), "{status}");
    assert_eq!(status["book"]["waiting"], 0, "{status}");
    assert_eq!(sites.instances().len(), instances);
    assert_eq!(sites.body("/app1/"), "app1\n");
}
