//! Limits of a pool, seen from inside a script.

use super::{Site, assert_quiet};
use crate::support::{is_root, process};

#[test]
fn a_pool_s_limits_are_its_workers_limits() {
    let settings =
        "pm = \"static\"\nmax_children = 1\nrlimit_files = 123\nrlimit_core = \"1M\"\nno_new_privs = true\n";
    let nice = if is_root() { "process.priority = 5\n" } else { "" };
    let site = Site::start(&format!("{settings}{nice}"), "", "");
    let script = "<?php $l = posix_getrlimit(); echo getmypid(), ' ', implode(' ', [$l['soft openfiles'],
        $l['hard openfiles'], $l['soft core'], $l['hard core']]);
        $open = []; while ($f = @fopen('/dev/null', 'r')) $open[] = $f; echo ' ', count($open) < 123 ? 'full' : 'more';";
    site.write("limits.php", script);
    let answer = site.get("/limits.php").text();
    let (pid, limits) = answer.split_once(' ').expect("two parts");
    assert_eq!(limits, "123 123 1048576 1048576 full");
    let pid = pid.parse().expect("a pid");
    assert_eq!(process::status_line(pid, "NoNewPrivs").as_deref(), Some("1"));
    if is_root() {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
        let after = stat.rsplit(')').next().unwrap_or_default();
        assert_eq!(after.split_whitespace().nth(16), Some("5"), "{stat}");
    }
    assert_eq!(site.get("/limits.php").text(), answer);
    assert_quiet(&site.daemon);
}

#[test]
fn php_admin_values_hold_and_php_values_can_be_changed() {
    let application = "php_value = { memory_limit = \"64M\", default_charset = \"ISO-8859-1\" }\n\
                       php_admin_value = { open_basedir = \"/usr/share:$DIR\", max_execution_time = 7 }\n\
                       php_admin_flag = { html_errors = false }\n";
    let base = std::env::temp_dir().display().to_string();
    let site = Site::start(
        "pm = \"static\"\nmax_children = 1\n",
        &application.replace("$DIR", &base),
        "",
    );
    let script = "<?php echo json_encode([ini_get('memory_limit'), ini_set('memory_limit', '65M'),
        ini_get('memory_limit'), ini_set('max_execution_time', 9), ini_get('max_execution_time'),
        @file_get_contents('/etc/passwd'), ini_get('default_charset')]);";
    site.write("ini.php", script);
    let wanted = "[\"64M\",\"64M\",\"65M\",false,\"7\",false,\"ISO-8859-1\"]";
    for _ in 0..2 {
        let answer = site.get("/ini.php");
        assert_eq!(
            answer.text(),
            wanted,
            "what a script sets is gone with its request"
        );
        assert_eq!(
            answer.header("Content-Type"),
            Some("text/html; charset=ISO-8859-1")
        );
    }
}
