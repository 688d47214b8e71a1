//! `forkyard status`: the daemon's age, its last upgrade, and what a reload would change.

use crate::it::upgrade;
use crate::support::prelude::*;

fn configure(dir: &Path) -> String {
    with_control(dir) + "include = [\"pools/*.toml\"]\n" + &one(dir, "www", 1)
}

fn one(dir: &Path, name: &str, max: u32) -> String {
    pool(
        dir,
        name,
        &format!("pm = \"static\"\nmax_children = {max}\n"),
        PHP,
    )
}

fn overview(daemon: &Daemon) -> String {
    text_of(&daemon.at_socket(&["status"]).output().expect("forkyard").stdout)
}

/// Waits until files that change now are newer than the configuration in force.
fn wait_for_the_clock(daemon: &Daemon) {
    let read = daemon.status(&[])["daemon"]["read_ms"].as_u64().expect("a time");
    let probe = daemon.dir.join("probe");
    wait_until("the clock of files", || {
        write_file(&probe, "");
        let data = fs::metadata(&probe).expect("probe");
        let changed = data.ctime() as u64 * 1000 + data.ctime_nsec() as u64 / 1_000_000;
        changed > read + 20
    });
}

#[test]
fn what_a_reload_would_change_is_shown_until_it_is_reloaded() {
    let dir = directory();
    let path = dir.path().to_owned();
    fs::create_dir(path.join("pools")).expect("mkdir");
    write_file(path.join("forkyard.toml"), configure(&path));
    write_file(path.join("pools/b.toml"), one(&path, "b", 1));
    wait_until("an old configuration", || {
        let data = fs::metadata(path.join("pools")).expect("pools");
        data.modified().expect("a time").elapsed().unwrap_or_default() > Duration::from_millis(50)
    });
    let daemon = Daemon::start_in(&path);
    let text = overview(&daemon);
    let head = text.lines().next().unwrap_or_default().to_owned();
    assert!(head.contains(", up ") && head.contains(" s since 20"), "{head}");
    assert_lacks(&text, "would change");
    assert_lacks(&daemon.log(), "is compared");
    let main = path.join("forkyard.toml");
    let good = configure(&path);
    let more = good.replace("max_children = 1", "max_children = 3");
    let rows: [(&dyn Fn(), &str); 6] = [
        (&|| write_file(&main, &more), "pool www (pm.max_children: 1 -> 3)"),
        (
            &|| write_file(path.join("pools/c.toml"), one(&path, "c", 1)),
            "pool c is added",
        ),
        (
            &|| write_file(path.join("pools/c.toml"), one(&path, "c", 2)),
            "pool c (pm.max_children: 1 -> 2)",
        ),
        (
            &|| fs::remove_file(path.join("pools/b.toml")).expect("remove"),
            "pool b is removed",
        ),
        (
            &|| fs::rename(path.join("pools/c.toml"), path.join("pools/c.off")).expect("rename"),
            "pool c is removed",
        ),
        (
            &|| {
                write_file(
                    &main,
                    more.replace("[global]\n", "[global]\nlog_level = \"debug\"\n"),
                )
            },
            "[global] (log_level: \"Notice\" -> \"Debug\")",
        ),
    ];
    for (change, told) in rows {
        wait_for_the_clock(&daemon);
        change();
        let text = overview(&daemon);
        assert_contains(&text, &format!("\na reload would change: {told}\n"));
        let json = daemon.status(&[]);
        assert_eq!(json["daemon"]["would_change"][0], told);
        assert_eq!(daemon.said(&["reload"]).0, Some(0));
        let text = overview(&daemon);
        assert_lacks(&text, "would change");
        assert_contains(&text, "\nlast reload ");
        assert!(daemon.status(&[])["last_reload"]["took_ms"].is_u64());
    }
    wait_for_the_clock(&daemon);
    write_file(&main, "nonsense");
    assert_contains(
        &overview(&daemon),
        "\na reload would change: nothing, for the files have errors: ",
    );
}

#[test]
fn the_age_and_the_last_upgrade_are_known_to_the_next_program() {
    let daemon = Daemon::start_by(configure, upgrade::installed);
    let path = daemon.dir.clone();
    let life = || daemon.status(&[])["daemon"].clone();
    let before = life();
    assert_eq!(before["started"], before["program_started"]);
    assert_eq!(before["program"]["replaced"], false);
    assert!(before["last_upgrade"].is_null(), "{before}");
    wait_until("a later second", || {
        let now = std::time::UNIX_EPOCH.elapsed().expect("a time").as_secs();
        Some(now) > before["started"].as_u64()
    });
    upgrade::install(&path);
    assert_contains(&overview(&daemon), "\nanother program is on disk");
    assert_eq!(daemon.said(&["upgrade"]).0, Some(0));
    let after = life();
    assert_eq!(after["started"], before["started"]);
    assert!(after["program_started"].as_u64() > before["program_started"].as_u64());
    let last = &after["last_upgrade"];
    assert_has(last, json!({"by": "command", "result": "done"}));
    assert!(last["took_ms"].is_u64() && last["from"] == last["to"], "{last}");
    assert_contains(&overview(&daemon), " by forkyard upgrade: done in ");

    write_program(&path.join("bin/forkyard.new"), "#!/bin/sh\nexit 3\n");
    fs::rename(path.join("bin/forkyard.new"), path.join("bin/forkyard")).expect("rename");
    daemon.signal(Signal::SIGUSR2);
    let text = until("the failed upgrade", || {
        Some(overview(&daemon)).filter(|text| text.contains(" by SIGUSR2: failed after "))
    });
    assert_contains(&text, " goes on: the new program ended with code 3");
}

#[test]
fn another_master_keeps_the_age() {
    let daemon = Daemon::start_kept(configure);
    let before = daemon.status(&[])["daemon"].clone();
    let master = daemon.kept_master();
    kill(Pid::from_raw(master as i32), Signal::SIGKILL).expect("kill");
    daemon.next_kept_master(master);
    daemon.wait_for_count("ready to handle connections", 2);
    let after = daemon.status(&[])["daemon"].clone();
    assert_eq!(after["started"], before["started"]);
    assert!(after["last_upgrade"].is_null(), "{after}");
}
