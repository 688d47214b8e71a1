//! The access log that instances of several users write to.

use super::Sites;
use crate::support::prelude::*;

const HOSTILE: &str = "\
import fcntl, os, stat

def application(environ, start_response):
    files = []
    for number in map(int, os.listdir('/proc/self/fd')):
        try:
            mode = os.fstat(number).st_mode
            if stat.S_ISREG(mode) and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE:
                files.append(os.readlink('/proc/self/fd/%d' % number))
            os.ftruncate(number, 0)
        except OSError:
            pass
    start_response('200 OK', [('Content-Type', 'text/plain')])
    return [' '.join(name for name in files if name.endswith('.access')).encode()]
";

#[test]
fn an_instance_has_nothing_of_the_log_but_a_way_to_append() {
    skip_if!(needs_root());
    let dir = directory();
    let path = dir.path().join("access");
    let settings = format!("access.log = \"{}\"\naccess.format = \"%m %r\"", path.display());
    let sites = Sites::start_with("", &settings);
    let lines = |count: usize| {
        until("the lines", || {
            let log = fs::read_to_string(&path).ok()?;
            (log.lines().count() == count).then_some(log)
        })
    };
    sites.wsgi("shop", 1, "'hello'");
    sites.add("hostile", 0, &[("passenger_wsgi.py", HOSTILE)]);
    for _ in 0..2 {
        assert_eq!(sites.body("/shop/"), "hello");
        assert_eq!(sites.body("/hostile/"), "", "the log");
    }
    assert_eq!(lines(4).matches("/shop").count(), 2);
    fs::rename(&path, dir.path().join("old")).expect("rename");
    sites.daemon.signal(Signal::SIGUSR1);
    sites.daemon.wait_for("access log file re-opened");
    assert_eq!(sites.body("/shop/"), "hello");
    assert_eq!(sites.body("/hostile/"), "");
    lines(2);
    let children = process::children(sites.daemon.pid());
    let mut writers = children
        .iter()
        .filter(|pid| process::title(**pid) == "forkyard: writer of logs");
    process::signal(*writers.next().expect("a writer"), Signal::SIGKILL);
    assert_eq!(writers.next(), None, "one for all");
    sites.daemon.wait_for("which writes logs, ended");
    assert_eq!(sites.body("/shop/"), "hello");
    lines(3);
}

#[test]
fn a_log_that_can_t_be_opened_anew_is_named_and_written_on() {
    let dir = directory();
    let (logs, away) = (dir.path().join("logs"), dir.path().join("away"));
    fs::create_dir(&logs).expect("a directory");
    let settings = format!("access.log = \"{}\"", logs.join("access").display());
    let sites = Sites::start_with("", &settings);
    sites.wsgi("shop", 1, "'hello'");
    assert_eq!(sites.body("/shop/"), "hello");
    fs::rename(&logs, &away).expect("rename");
    let said = exited(Some(70), sites.daemon.said(&["reopen-logs"]));
    assert_contains(&said, &logs.join("access").display().to_string());
    assert_eq!(sites.body("/shop/"), "hello");
    wait_until("a second line in the old file", || {
        read_file(away.join("access")).matches("/shop").count() == 2
    });
}

/// A log is no reason to stop a site: php-fpm's new workers also go on with the file that the master opened.
#[test]
fn an_application_starts_without_the_directory_of_its_logs() {
    let dir = directory();
    let (logs, away) = (dir.path().join("logs"), dir.path().join("away"));
    fs::create_dir(&logs).expect("a directory");
    let settings = format!(
        "access.log = \"{0}/access\"\nslowlog = \"{0}/slow\"\nrequest_slowlog_timeout = \"60s\"",
        logs.display()
    );
    let sites = Sites::start_with("", &settings);
    sites.wsgi("shop", 1, "'hello'");
    sites.wsgi("late", 1, "'later'");
    assert_eq!(sites.body("/shop/"), "hello");
    fs::rename(&logs, &away).expect("rename");
    assert_eq!(sites.body("/late/"), "later", "{}", sites.daemon.log());
    let said = format!(
        "access.log: failed to open {}: No such file or directory (os error 2); the file that was opened last is written on",
        logs.join("access").display()
    );
    sites.daemon.wait_for(&said);
    sites
        .daemon
        .wait_for("; slow requests of this application are not logged");
    wait_until("a line in the old file", || {
        read_file(away.join("access")).contains("/late")
    });
    // The directory is back: everything is written to its place again.
    fs::rename(&away, &logs).expect("rename");
    fs::rename(logs.join("access"), logs.join("access.1")).expect("rename");
    assert_eq!(sites.daemon.said(&["reopen-logs"]), (Some(0), String::new()));
    assert_eq!(sites.body("/late/"), "later");
    wait_until("a line in the new file", || {
        fs::read_to_string(logs.join("access")).is_ok_and(|text| text.contains("/late"))
    });
}
