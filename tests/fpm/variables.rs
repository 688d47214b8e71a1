//! Variables of the environment over php-fpm's files, as a container has them.

use super::both::forkyard_fpm;
use super::pair::Fpm;
use crate::support::prelude::*;

const PAGE: &str = "<?php echo ini_get('memory_limit'), ' ', getenv('FROM'), ' ', ini_get('date.timezone');";

fn tested(variables: &[(&str, &str)]) -> Output {
    let dir = tempfile::tempdir().expect("there is room");
    let file = dir.path().join("fpm.conf");
    let text = format!(
        "[global]\nerror_log = {0}/error\n[www]\nlisten = 127.0.0.1:9000\nlisten.allowed_clients = 127.0.0.3\n\
         pm = dynamic\npm.max_children = 5\npm.min_spare_servers = 1\npm.max_spare_servers = 3\n\
         php_value[memory_limit] = 40M\nuser = www-data\n[my-app]\nuser = www-data\nlisten = 127.0.0.1:9001\n\
         pm = static\npm.max_children = 1\n",
        dir.path().display()
    );
    fs::write(&file, text).expect("writable");
    let mut command = Command::new(forkyard_fpm());
    command.args(["-n", "-tt", "-y"]).arg(&file);
    command
        .envs(variables.iter().copied())
        .output()
        .expect("it can be run")
}

fn said(output: &Output) -> String {
    text_of(&output.stderr)
}

#[test]
fn a_variable_is_a_line_of_its_pool_s_section() {
    let output = tested(&[
        ("FORKYARD_POOL_WWW__MAX_CHILDREN", "20"),
        ("FORKYARD_POOL_WWW__PING__PATH", "/ping"),
        (
            "FORKYARD_POOL_WWW__LISTEN__ALLOWED_CLIENTS",
            "[\"127.0.0.1\", \"127.0.0.2\"]",
        ),
        ("FORKYARD_POOL_WWW__APPLICATION__PHP_VALUE__MEMORY_LIMIT", "50M"),
        ("FORKYARD_POOL_WWW__ENV__Mixed", "x"),
        ("FORKYARD_POOL_MY_APP__PM", "ondemand"),
        ("FORKYARD_GLOBAL__LOG_LEVEL", "notice"),
        ("FORKYARD_GLOBAL__PROCESS_CONTROL_TIMEOUT", "7s"),
    ]);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    for line in [
        "pm.max_children = 20",
        "ping.path = /ping",
        "listen.allowed_clients = 127.0.0.1,127.0.0.2",
        "php_value[memory_limit] = 50M",
        "env[Mixed] = x",
        "pm = ondemand",
        "process_control_timeout = 7s",
    ] {
        let shown = said.lines().filter(|shown| shown.ends_with(&format!("\t{line}")));
        assert_eq!(shown.count(), 1, "{line}:\n{said}");
    }
    assert_lacks(&said, "= 40M");
}

#[test]
fn php_fpm_s_rules_hold_for_a_variable_and_it_is_named() {
    let cases = [
        (
            "FORKYARD_POOL_WWW__MAX_CHILDREN",
            "2",
            "pm.max_spare_servers(3) cannot be greater than pm.max_children(2)",
        ),
        (
            "FORKYARD_POOL_WWW__MAX_CHILDREN",
            "many",
            "[FORKYARD_POOL_WWW__MAX_CHILDREN] unable to parse value 'many' for entry 'pm.max_children': is not a valid number",
        ),
        (
            "FORKYARD_POOL_WWW__STOP_TIMEOUT",
            "soon",
            "FORKYARD_POOL_WWW__STOP_TIMEOUT: [pool www] stop_timeout: \"soon\" is not",
        ),
        (
            "FORKYARD_POOL_WWW__MAX_CHILDERN",
            "2",
            "FORKYARD_POOL_WWW__MAX_CHILDERN: [pool www] max_childern: unknown key; did you mean max_children?",
        ),
        (
            "FORKYARD_GLOBAL__ON_SIGTERM",
            "finsh",
            "FORKYARD_GLOBAL__ON_SIGTERM: global.on_sigterm: \"finsh\" is not",
        ),
    ];
    for (name, value, expected) in cases {
        let output = tested(&[(name, value)]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(78), "{name}={value}:\n{said}");
        assert!(said.contains(expected), "{name}={value}:\n{said}");
    }
}

#[test]
fn pools_of_php_fpm_s_files_run_as_variables_have_it() {
    skip_if!(needs_root());
    let mut command = Command::new(forkyard_fpm());
    command
        .env("FORKYARD_POOL_WWW__APPLICATION__PHP_VALUE__MEMORY_LIMIT", "50M")
        .env(
            "FORKYARD_POOL_WWW__APPLICATION__PHP_ADMIN_VALUE__DATE__TIMEZONE",
            "Asia/Tokyo",
        )
        .env("FORKYARD_POOL_WWW__ENV__FROM", "outside")
        .env("FORKYARD_POOL_OTHER__MAX_CHILDREN", "2")
        .env("FORKYARD_POOL_WWW_MAX_CHILDREN", "2");
    let fpm = Fpm::launch_by(
        &mut command,
        "",
        "php_value[memory_limit] = 40M",
        &[("a.php", PAGE)],
    );
    let log = fpm.wait_for("error", "ready to handle connections");
    for warning in [
        "WARNING: FORKYARD_POOL_OTHER__MAX_CHILDREN: there is no such pool, so the variable has no effect",
        "WARNING: FORKYARD_POOL_WWW_MAX_CHILDREN: it stands for no key, so the variable has no effect; did you mean \
         FORKYARD_POOL_WWW__MAX_CHILDREN?",
    ] {
        assert!(log.contains(warning), "{log}");
    }
    let answer = fpm.ask(&fpm.params("a.php", ""), b"");
    assert_eq!(answer.body(), "50M outside Asia/Tokyo");
}
