//! Messages and exit codes of failed starts, in the foreground and background.

use super::both::{STOCK, compare, forkyard_fpm, is_stock_there, said};
use crate::support::prelude::*;

fn write(directory: &Path, global: &str, pool: &str) -> String {
    let path = directory.join("php-fpm.conf");
    let text = format!(
        "[global]\nerror_log = {}/log\n{global}\n[www]\nuser = www-data\npm = static\npm.max_children = 1\n{pool}\n",
        directory.display()
    );
    fs::write(&path, text).expect("the directory is writable");
    path.to_string_lossy().into_owned()
}

fn log(directory: &Path) -> String {
    let path = directory.join("log");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let _ = fs::remove_file(path);
    text
}

#[test]
fn a_start_that_fails_has_php_fpms_words_and_code() {
    skip_if!(!is_stock_there() || needs_root());
    let directory = tempfile::tempdir().expect("there is room");
    let path = directory.path();
    let held = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let busy = held.local_addr().expect("it is bound");
    let taken = path.join("taken.sock");
    let _taken = UnixListener::bind(&taken).expect("the directory is writable");
    let free = format!("listen = {}/free.sock", path.display());
    let cases = [
        ("", format!("listen = {busy}"), "Address already in use (98)"),
        ("", "listen = 70000".to_owned(), "invalid port value '70000'"),
        ("", "listen = /nonexistent/a.sock".to_owned(), "unable to bind"),
        ("", format!("{free}\nlisten.owner = nosuchuser"), "cannot get uid"),
        (
            "",
            format!("{free}\nlisten.group = nosuchgroup"),
            "cannot get gid",
        ),
        ("", format!("{free}\nuser = root"), "other than root"),
        (
            "pid = /nonexistent/pid",
            free.clone(),
            "Unable to create the PID file",
        ),
        ("pid = /", free.clone(), "Unable to create the PID file"),
        ("pid =", free.clone(), "Unable to create the PID file (/var/)."),
        (
            "error_log = /nonexistent/log",
            free.clone(),
            "failed to open error_log",
        ),
        (
            "",
            format!("listen = {}", taken.display()),
            "Another FPM instance",
        ),
    ];
    for (global, pool, expected) in &cases {
        let file = write(path, global, pool);
        for how in ["-F", "-D"] {
            let said = compare(pool, &["-n", how, "-y", &file]).unwrap_or_else(|text| panic!("{how} {text}"));
            assert!(said.contains(expected), "{said}");
            let log = log(path);
            let count = log.matches("FPM initialization failed").count();
            assert!(*global == "error_log = /nonexistent/log" || count == 2, "{log}");
        }
    }
}

#[test]
fn a_host_that_is_not_known_is_said_in_getaddrinfos_words() {
    skip_if!(!is_stock_there() || needs_root());
    let directory = tempfile::tempdir().expect("there is room");
    let file = write(directory.path(), "", "listen = nosuch.invalid:9000");
    let said = compare("unknown host", &["-n", "-F", "-y", &file]).unwrap_or_else(|text| panic!("{text}"));
    assert_contains(&said, "getaddrinfo: ");
}

#[test]
fn a_php_that_does_not_start_is_no_mistake_in_the_configuration() {
    skip_if!(!is_stock_there() || needs_root());
    let directory = tempfile::tempdir().expect("there is room");
    let pool = format!("listen = {}/a.sock", directory.path().display());
    let file = write(directory.path(), "", &pool);
    let preload = "opcache.preload=/nonexistent";
    let user = "opcache.preload_user=www-data";
    let arguments = ["-F", "-d", preload, "-d", user, "-y", &file];
    for program in [STOCK, forkyard_fpm()] {
        let (text, code) = said(program, &arguments);
        assert_eq!(code, Some(70), "{program}: {text}");
    }
}
