//! What PHP was started from holds until a reload, also for processes that are started later.

use crate::support::daemon::{Daemon, pool};
use crate::support::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;

const SHOW: &str = "<?php echo json_encode([ini_get('date.timezone'), ini_get('user_agent'), ini_get('precision'), \
                    ini_get('memory_limit'), php_ini_loaded_file(), get_cfg_var('cfg_file_path'), \
                    array_map('trim', explode(',', php_ini_scanned_files())), extension_loaded('calendar')], \
                    JSON_UNESCAPED_SLASHES), \"\\n\";";
const TOLD: &str = "changed since the start or the last reload";

fn configure(dir: &Path) -> String {
    let etc = dir.join("etc");
    fs::create_dir_all(etc.join("conf.d")).expect("directory");
    fs::write(
        etc.join("php.ini"),
        "date.timezone = Europe/Paris\n[HOST=other.example]\nuser_agent = section\n",
    )
    .expect("php.ini");
    // It does not belong to the section that php.ini ends with. The last line is not ended.
    fs::write(
        etc.join("conf.d/10-a.ini"),
        "user_agent = \"a \\\"of\\\" before\"\nprecision = 9",
    )
    .expect("a file");
    fs::write(
        etc.join("conf.d/20-b.ini"),
        "precision = 11\nextension = calendar\n",
    )
    .expect("a file");
    let named = |name: &str, pm: &str| {
        let application = format!(
            "runtime = \"php\"\nversion = \"8.2\"\nphp_ini = \"{}\"\nphp_value = {{ memory_limit = \"77M\" }}\n",
            etc.display()
        );
        pool(dir, name, pm, &application)
    };
    let ondemand = "pm = \"ondemand\"\nmax_children = 1\n";
    named("early", "pm = \"static\"\nmax_children = 1\n")
        + &named("late", ondemand)
        + &named("later", ondemand)
}

fn shown(daemon: &Daemon, pool: &str) -> String {
    daemon.get(pool, "show.php").body()
}

#[test]
fn an_edited_php_ini_waits_for_the_reload() {
    let daemon = Daemon::start(configure);
    daemon.write("show.php", SHOW);
    let old = shown(&daemon, "early");
    let etc = daemon.dir.join("etc");
    let [ini, a, b] =
        ["php.ini", "conf.d/10-a.ini", "conf.d/20-b.ini"].map(|name| etc.join(name).display().to_string());
    assert_eq!(
        old,
        format!(
            "[\"Europe/Paris\",\"a \\\"of\\\" before\",\"11\",\"77M\",\"{ini}\",\"{ini}\",[\"{a}\",\"{b}\"],true]\n"
        )
    );

    daemon.write("etc/php.ini", "date.timezone = Asia/Tokyo\n");
    // As when a package is being unpacked.
    fs::remove_file(etc.join("conf.d/10-a.ini")).expect("the file is there");
    daemon.write(
        "etc/conf.d/20-b.ini",
        "precision = 13\nextension = is_not_there_yet\n",
    );
    daemon.write("etc/conf.d/30-c.ini", "user_agent = new\n");
    for pool in ["late", "later"] {
        assert_eq!(shown(&daemon, pool), old, "{pool}");
    }
    // A process that is lost is one of before, too.
    let pids = daemon
        .preloaders("early")
        .into_iter()
        .chain(daemon.workers("early"));
    for pid in pids {
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("it runs");
    }
    assert_eq!(shown(&daemon, "early"), old);
    let log = daemon.log();
    assert_eq!(log.matches(TOLD).count(), 1, "{log}");
    let line = log.lines().find(|line| line.contains(TOLD)).expect("the line");
    assert!(
        line.contains(&format!("NOTICE: {a} and 3 other files changed")),
        "{line}"
    );
    assert!(
        line.ends_with("PHP is started with the settings of before until a reload"),
        "{line}"
    );

    daemon.write("etc/conf.d/20-b.ini", "precision = 13\n");
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count("reload done", 1);
    let c = etc.join("conf.d/30-c.ini").display().to_string();
    let new =
        format!("[\"Asia/Tokyo\",\"new\",\"13\",\"77M\",\"{ini}\",\"{ini}\",[\"{b}\",\"{c}\"],false]\n");
    for pool in ["early", "late", "later"] {
        until("the new settings", || (shown(&daemon, pool) == new).then_some(()));
    }
    assert_eq!(daemon.log().matches(TOLD).count(), 1, "nothing changed since");
}

#[test]
fn a_directory_of_settings_that_is_gone_is_missed_by_none() {
    let daemon = Daemon::start(configure);
    daemon.write("show.php", SHOW);
    let old = shown(&daemon, "early");
    fs::rename(daemon.dir.join("etc"), daemon.dir.join("gone")).expect("the directory is ours");
    assert_eq!(shown(&daemon, "late"), old);
    let line = daemon.wait_for(TOLD);
    assert!(line.contains("etc/conf.d/10-a.ini and "), "{line}");
    fs::rename(daemon.dir.join("gone"), daemon.dir.join("etc")).expect("the directory is ours");
    assert_eq!(shown(&daemon, "later"), old);
}
