//! Empty PHP settings, and messages about starting and full pools.

use super::pair::{Fpm, is_possible};
use crate::support::fcgi::Client;

const SHOW: &str = "<?php foreach (['open_basedir', 'disable_functions', 'date.timezone', 'error_log', 'display_errors', \
                    'default_charset', 'include_path', 'auto_prepend_file', 'html_errors', 'user_agent'] as $name) \
                    { echo $name, '=', var_export(ini_get($name), true), \"\\n\"; } echo is_readable('/etc/passwd') ? 'open' : 'shut';";

#[test]
fn settings_that_are_nothing_are_taken_as_in_php_fpm() {
    skip_if!(!is_possible());
    let pool = "php_admin_value[open_basedir] = none\nphp_admin_value[disable_functions] =\n\
                php_value[date.timezone] = \"\"\nphp_value[error_log] = no\nphp_flag[display_errors] =\n\
                php_value[default_charset] = off\nphp_value[include_path] = null\nphp_value[auto_prepend_file] = none\n\
                php_admin_flag[html_errors] = \"\"\nphp_value[user_agent] = ${NOT_THERE}\n";
    let seen = Fpm::both("", pool, &[("a.php", SHOW)]).map(|fpm| {
        let answer = fpm.ask(&fpm.params("a.php", ""), b"");
        (answer.body(), answer.error_text())
    });
    assert_eq!(seen[0], seen[1]);
    assert!(seen[1].0.starts_with("open_basedir=''\n"), "{seen:?}");
    assert!(seen[1].0.ends_with("open"), "{seen:?}");
}

const DYNAMIC: &str = "pm = dynamic\npm.max_children = 2\npm.start_servers = 1\npm.min_spare_servers = 1\npm.max_spare_servers = 1\n";

#[test]
fn a_full_pool_is_reported_in_php_fpms_words() {
    skip_if!(!is_possible());
    let words = "WARNING: [pool www] server reached pm.max_children setting (2), consider raising it";
    let script = "<?php while (!file_exists(__DIR__ . '/go')) usleep(10000);";
    for fpm in Fpm::both("", DYNAMIC, &[("a.php", script)]) {
        let mut clients: Vec<Client> = Vec::new();
        for _ in 0..3 {
            let mut client = Client::connect_tcp(&fpm.address).expect("it listens");
            client.send(&fpm.params("a.php", ""), b"").expect("it reads");
            clients.push(client);
        }
        fpm.wait_for("error", words);
        std::fs::write(fpm.path("go"), "").expect("writable");
        for mut client in clients {
            client.answer().expect("it answers");
        }
    }
}

#[test]
fn only_workers_that_have_begun_are_shown() {
    skip_if!(!is_possible());
    let script = "<?php foreach (fpm_get_status()['procs'] as $p) echo $p['pid'] > 0 && $p['start-time'] > 1e9 ? 'y' : 'n';";
    for _ in 0..5 {
        for fpm in Fpm::both("", DYNAMIC, &[("a.php", script)]) {
            let body = fpm.get("a.php");
            assert!(!body.is_empty() && !body.contains('n'), "{body}");
        }
    }
}
