//! Settings that come with a request: reaching a socket must not be as good as running code.

use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";
const REFUSED: &str = "WARNING: [pool www] refused the setting 'auto_prepend_file' that came with a request";

fn start(application: &str) -> Daemon {
    let daemon = Daemon::start(|dir| php_pool(dir, STATIC, application));
    daemon.write(
        "any.php",
        "<?php echo 'script ', ini_get('memory_limit'), ' ', ini_get('precision');",
    );
    daemon
}

fn ask(daemon: &Daemon, value: &str, admin_value: &str, body: &str) -> Answer {
    let mut params = Params::get(&daemon.dir, "any.php", "").posting(body.len());
    if !value.is_empty() {
        params = params.with("PHP_VALUE", value);
    }
    if !admin_value.is_empty() {
        params = params.with("PHP_ADMIN_VALUE", admin_value);
    }
    daemon.put("www", &params, body.as_bytes())
}

fn exploit(daemon: &Daemon) -> String {
    let body = "<?php echo 'owned by ', get_current_user(), ' '; ?>";
    ask(
        daemon,
        "auto_prepend_file = php://input",
        "allow_url_include = On",
        body,
    )
    .body()
}

#[test]
fn the_classic_exploit_runs_nothing_by_default() {
    let daemon = start("");
    let body = exploit(&daemon);
    assert_starts(&body, "script ");
    assert_lacks(&body, "owned");
    let line = daemon.wait_for(REFUSED);
    assert_contains(&line, "request_settings");
    assert_contains(&line, "it is not among the harmless ones");
    daemon.wait_for("refused the setting 'allow_url_include'");
    // Logged once for each worker: an attacker must not fill the log.
    for _ in 0..5 {
        assert!(!exploit(&daemon).contains("owned"));
    }
    assert_eq!(daemon.log().matches(REFUSED).count(), 1);
}

#[test]
fn with_all_it_is_as_in_php_fpm() {
    let daemon = start("request_settings = \"all\"\n");
    assert!(exploit(&daemon).contains("owned by"), "the exploit is a real one");
    assert!(!daemon.log().contains("refused the setting"));
}

#[test]
fn harmless_ones_go_through_and_what_the_pool_holds_does_not() {
    let daemon = start("php_admin_value = { memory_limit = \"50M\" }\n");
    let body = ask(
        &daemon,
        "memory_limit = 1G\nprecision = 5",
        "memory_limit = 2G",
        "",
    )
    .body();
    assert_eq!(body, "script 50M 5");
    daemon.wait_for("'memory_limit' that came with a request (PHP_VALUE, PHP_ADMIN_VALUE): the pool's php_admin_value has it");
}

#[test]
fn none_is_none_and_a_list_is_a_list() {
    let daemon = start("request_settings = \"none\"\n");
    assert_eq!(ask(&daemon, "precision = 5", "", "").body(), "script 128M 14");
    assert!(!exploit(&daemon).contains("owned"));
    drop(daemon);
    let daemon = start("request_settings = [\"precision\"]\n");
    assert_eq!(
        ask(&daemon, "precision = 5", "memory_limit = 1G", "").body(),
        "script 128M 5"
    );
    assert!(!exploit(&daemon).contains("owned"));
}

#[test]
fn a_path_of_another_ending_is_not_run() {
    let daemon = start("");
    let file = daemon.write("upload.jpg", "<?php echo 'ran';");
    for path in [file.display().to_string(), format!("{}/x.php", file.display())] {
        let params = Params::get(&daemon.dir, "any.php", "").with("SCRIPT_FILENAME", &path);
        let answer = daemon.ask("www", &params);
        assert!(!answer.text().contains("ran"), "{path}: {}", answer.text());
    }
}
