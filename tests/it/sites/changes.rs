//! Reloads, upgrades, and a master that is killed.

use super::{Sites, configuration, visitors};
use crate::support::prelude::*;

pub(super) fn reload(sites: &Sites, applications: &str, more: &str) {
    let text = configuration(&sites.daemon.dir, applications, more);
    fs::write(sites.daemon.dir.join("forkyard.toml"), text).expect("configuration");
    let output = sites.forkyard(&["reload"]);
    let error = text_of(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", sites.daemon.log());
}

#[test]
fn a_reload_restarts_applications_of_which_something_changed() {
    let sites = Sites::start("max = 4");
    sites.php("app", 0, "echo getmypid(), ' ', getenv('COLOUR');");
    let before = sites.body("/app/");
    reload(&sites, "max = 3\nmax_idle_time = \"9s\"", "");
    assert_eq!(sites.body("/app/"), before);
    assert_eq!(sites.status()["max"], 3);
    let load = visitors(sites.nginx.port, &["/app/"], 3);
    load.wait_for(20);
    reload(&sites, "max = 3", "env = { COLOUR = \"blue\" }");
    wait_until("the new settings", || sites.body("/app/").ends_with(" blue"));
    load.wait_for(20);
    assert!(load.end().iter().all(|(status, _)| *status == 200));
    let inspector = sites.companion("inspector");
    let other = format!(
        "max = 3\nforget_after = \"1m\"\nrestart_dir = \"restart\"\nroot_parameter = \"OTHER\"\n\
         default_user = \"{}\"",
        super::USERS[0].0
    );
    reload(&sites, &other, "env = { COLOUR = \"blue\" }");
    wait_until("another inspector", || !process::runs(inspector));
}

#[test]
fn a_reload_holds_running_instances_to_another_idle_time() {
    let sites = Sites::start("max = 4\nmax_idle_time = \"1h\"");
    sites.wsgi("app", 0, "str(os.getpid())");
    let pid = sites.body("/app/").parse().expect("a pid");
    reload(&sites, "max = 4\nmax_idle_time = \"1s\"", "");
    wait_until("the end of the idle instance", || !process::runs(pid));
}

#[test]
fn a_pool_that_is_no_longer_configured_ends_with_its_applications() {
    let sites = Sites::start("max = 4");
    sites.php("app", 0, "usleep(200000); echo 'fine';");
    sites.body("/app/");
    let load = visitors(sites.nginx.port, &["/app/"], 1);
    load.wait_for(1);
    let path = sites.daemon.dir.display().to_string();
    let program = sites.daemon.write("more.cgi", "#!/bin/sh\n");
    let text = format!(
        "[global]\ncontrol = \"{path}/control.sock\"\n{}",
        pool(
            &sites.daemon.dir,
            "other",
            "pm = \"ondemand\"\nmax_children = 1\n",
            &format!("runtime = \"cgi\"\nscript = \"{}\"\n", program.display())
        )
    );
    fs::write(sites.daemon.dir.join("forkyard.toml"), text).expect("configuration");
    assert!(sites.forkyard(&["reload"]).status.success());
    wait_until("everything of it to end", || {
        let children = process::children(sites.daemon.pid());
        children.iter().all(|pid| !process::title(*pid).contains("sites"))
    });
    assert!(!sites.daemon.socket("sites").exists());
    load.end();
}

#[test]
fn an_upgrade_loses_no_request() {
    let sites = Sites::start("max = 3");
    sites.php("app", 0, "usleep(2000); echo 'fine';");
    sites.body("/app/");
    let (router, before) = (sites.companion("router"), sites.instances());
    let load = visitors(sites.nginx.port, &["/app/"], 4);
    load.wait_for(20);
    let output = sites.forkyard(&["upgrade"]);
    let error = text_of(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", sites.daemon.log());
    load.wait_for(40);
    let answers = load.end();
    let bad = answers.iter().find(|answer| **answer != (200, "fine".to_owned()));
    assert_eq!(bad, None, "{}", sites.daemon.log());
    assert_ne!(sites.companion("router"), router);
    assert!(before.is_disjoint(&sites.instances()));
}

#[test]
fn after_a_killed_master_another_serves_and_nothing_of_the_old_one_stays() {
    let sites = Sites::before(Daemon::start_kept(|dir| configuration(dir, "max = 3", "")));
    sites.php("app", 0, "echo 'fine';");
    sites.body("/app/");
    let of = |pid: u32| process::children(pid).into_iter();
    let first = sites.daemon.kept_master();
    let old: Vec<u32> = of(first).collect();
    process::signal(first, Signal::SIGKILL);
    let next = sites.daemon.next_kept_master(first);
    sites.daemon.wait_for_count("ready to handle connections", 2);
    assert_eq!(sites.body("/app/"), "fine");
    process::wait_for_ends(&old);
    // The kernel's list of children may lack some while others exit.
    wait_until("one router", || {
        let routers = of(next)
            .map(process::title)
            .filter(|title| title == "forkyard: router sites");
        routers.count() == 1
    });
}
