//! PHP applications keep the settings of the daemon's start.

use super::Sites;
use crate::support::prelude::*;

#[test]
fn applications_that_come_later_have_the_settings_of_the_start() {
    let conf = directory();
    let file = conf.path().join("agent.ini");
    fs::write(&file, "user_agent = before\n").expect("the directory is ours");
    let env = format!(
        "env = {{ PHP_INI_SCAN_DIR = \":{}\" }}\n[pool.sites.application]\npreloader = \"own\"\n",
        conf.path().display()
    );
    let sites = Sites::start_with("max = 4", &env);
    fs::write(&file, "user_agent = after\n").expect("the directory is ours");
    each(["one", "two"], |name| {
        sites.php(name, 0, "echo ini_get('user_agent');");
        assert_eq!(sites.body(&format!("/{name}/")), "before");
    });
    let told = format!("{} changed since the start or the last reload", file.display());
    assert_eq!(sites.daemon.log().matches(&told).count(), 1);

    sites.daemon.signal(Signal::SIGUSR2);
    sites.daemon.wait_for_count("reload done", 1);
    sites.php("three", 0, "echo ini_get('user_agent');");
    wait_until("the new settings", || sites.body("/three/") == "after");
}
