//! How many lines a pool has the daemon write.

use crate::support::prelude::*;

const APPLICATION: &str = "\
import os, socket

def application(environ, start):
    if environ['QUERY_STRING'] == 'end':
        os._exit(3)
    for number in map(int, os.listdir('/proc/self/fd')):
        try:
            if number > 2:
                socket.socket(fileno=os.dup(number)).send(b'4a flood of words\\n' * 100)
        except OSError:
            pass
    start('200 OK', [])
    return [b'said']
";

/// Log lines that workers can cause: limited by cause, a minute.
#[test]
fn what_a_pool_causes_is_some_lines_of_the_log() {
    let dir = directory();
    let path = dir.path();
    fs::write(path.join("wsgi.py"), APPLICATION).expect("write");
    let settings = "pm = \"ondemand\"\nmax_children = 1\n";
    let configuration = pool(path, "www", settings, &application_in("wsgi", path, ""));
    fs::write(path.join("forkyard.toml"), configuration).expect("configuration");
    let daemon = Daemon::launch(path, forkyard(&["run"], path)).ready();
    let ask = |query: &str| {
        let params = Params::get(path, "x", query);
        daemon.client("www").request(&params, b"")
    };
    for _ in 0..3 {
        let _ = ask("");
    }
    for _ in 0..30 {
        let _ = ask("end");
    }
    daemon.wait_for_count("exited with code 3", 20);
    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for("error log file re-opened");
    let count = |text: &str| daemon.log().lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("exited with code 3"), 20);
    assert_eq!(count("] a flood of words"), 20);
}
