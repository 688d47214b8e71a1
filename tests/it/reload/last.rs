//! The result of the last reload, and changes that a reload makes to open sockets.

use crate::it::security::NOBODY;
use crate::it::upgrade;
use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";

fn configure(dir: &Path, settings: &str) -> String {
    let global = with_control(dir);
    global + &php_pool(dir, &format!("{STATIC}{settings}"), "")
}

fn write(daemon: &Daemon, text: &str) {
    fs::write(daemon.dir.join("forkyard.toml"), text).expect("configuration");
}

fn last(daemon: &Daemon) -> Value {
    let output = daemon
        .at_socket(&["status", "--json"])
        .output()
        .expect("forkyard");
    parsed(&text_of(&output.stdout))["last_reload"].clone()
}

fn wait_for_last(daemon: &Daemon, by: &str, result: &str) -> Value {
    until(&format!("a reload by {by}: {result}"), || {
        let last = last(daemon);
        (last["by"] == by && last["result"] == result).then_some(last)
    })
}

fn start(as_root: bool) -> Daemon {
    if as_root {
        return Daemon::start(|dir| configure(dir, ""));
    }
    let configure = |dir: &Path| configure(dir, "").replace("user = \"www-data\"\n", "");
    Daemon::start_by(configure, |dir| as_user(forkyard(&["run"], dir), NOBODY))
}

#[test]
fn what_became_of_the_last_reload_is_known() {
    let users = if is_root() { &[true, false][..] } else { &[false] };
    for as_root in users {
        let daemon = start(*as_root);
        daemon.wait_for_workers("www", 1);
        assert_has(&last(&daemon), json!({"by": "start", "result": "done"}));
        let good = read_file(daemon.dir.join("forkyard.toml"));
        let bad = good.replace("max_children = 1", "max_children = -1");
        let line = 1 + bad
            .lines()
            .position(|line| line == "max_children = -1")
            .expect("a line");
        let place = format!("forkyard.toml:{line}:");
        for (how, by) in [
            (None, "signal"),
            (Some(&["reload"][..]), "command"),
            (Some(&["reload", "--all"][..]), "command-all"),
        ] {
            let case = format!("{by}, as root: {as_root}");
            let reload = || match how {
                None => daemon.signal(Signal::SIGUSR2),
                Some(arguments) => drop(daemon.said(arguments)),
            };
            write(&daemon, &bad);
            reload();
            let refused = wait_for_last(&daemon, by, "refused");
            let error = refused["error"].as_str().unwrap_or_default();
            assert!(
                error.contains(&place) && error.contains("max_children"),
                "{case}: {refused}"
            );
            let now = std::time::UNIX_EPOCH.elapsed().expect("a time").as_secs();
            let time = refused["time"].as_u64().expect("a time");
            assert!(time <= now && now - time < 300, "{case}: {refused}");
            let told = format!(": refused, the old configuration stays in force: {error}\n");
            for (arguments, code) in [
                (&["health"][..], 0),
                (&["health", "--ready"], 0),
                (&["health", "--strict"], 1),
                (&["health", "--ready", "--strict"], 1),
                (&["health", "--busy", "--strict"], 1),
            ] {
                let (given, text) = daemon.said(arguments);
                assert_eq!(given, Some(code), "{case} {arguments:?}: {text}");
                assert!(
                    text.contains("\nwarning: last reload ") == (code == 0)
                        && text.contains("warning: last reload ")
                        && text.contains(&told),
                    "{case} {arguments:?}: {text}"
                );
            }
            for arguments in [&["status"][..], &["status", "www"]] {
                let (_, text) = daemon.said(arguments);
                assert!(text.contains(&told), "{case}: {text}");
            }
            let (_, numbers) = daemon.said(&["status", "--metrics"]);
            assert!(
                numbers.contains("\nforkyard_last_reload_successful{} 0\n")
                    && numbers.contains("\nforkyard_last_reload_timestamp_seconds{} "),
                "{case}: {numbers}"
            );

            write(&daemon, &good);
            reload();
            let done = wait_for_last(&daemon, by, "done");
            assert!(
                done["time"].as_u64() >= Some(time) && done["error"].is_null(),
                "{case}: {done}"
            );
            let (code, text) = daemon.said(&["health", "--ready", "--strict"]);
            assert_eq!((code, text.as_str()), (Some(0), "ready\n"), "{case}");
            let (_, table) = daemon.said(&["status"]);
            assert!(
                table.contains("\nlast reload ") && table.contains(": done\n\n"),
                "{case}: {table}"
            );
            let (_, numbers) = daemon.said(&["status", "--metrics=prometheus"]);
            assert!(
                numbers.contains("\nforkyard_last_reload_successful{} 1\n"),
                "{case}: {numbers}"
            );
        }
        let taken = daemon.write("taken", "");
        let other = good.replace("[pool.www", "[pool.b").replace("www.sock", "taken");
        let (_, other) = other.split_once("[pool.b]\n").expect("a pool");
        write(&daemon, &format!("{good}[pool.b]\n{other}"));
        daemon.signal(Signal::SIGUSR2);
        let refused = wait_for_last(&daemon, "signal", "refused");
        let error = refused["error"].as_str().unwrap_or_default();
        assert!(
            error.contains(&taken.display().to_string()) && error.contains("is no socket"),
            "{refused}"
        );
    }
}

#[test]
fn a_reload_that_is_not_done_for_all_pools_is_known() {
    let daemon = Daemon::start(|dir| configure(dir, ""));
    daemon.wait_for_workers("www", 1);
    let broken = configure(&daemon.dir, "").replace(
        "[pool.www.application]\n",
        &format!(
            "[pool.www.application]\nphp_admin_value = {{ \"opcache.preload\" = \"{}/none.php\" }}\npreloader = \"own\"\n",
            daemon.dir.display()
        ),
    );
    write(&daemon, &broken);
    assert_ne!(daemon.said(&["reload"]).0, Some(0));
    let incomplete = wait_for_last(&daemon, "command", "incomplete");
    let error = incomplete["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("[pool www]: "), "{incomplete}");
    let text = exited(Some(1), daemon.said(&["health", "--strict"]));
    assert_contains(&text, "not done for all pools: [pool www]: ");
}

#[test]
fn the_next_master_knows_the_last_reload() {
    let daemon = Daemon::start_by(|dir| configure(dir, ""), upgrade::installed);
    let path = daemon.dir.clone();
    daemon.wait_for_workers("www", 1);
    assert_eq!(daemon.said(&["reload"]).0, Some(0));
    let before = wait_for_last(&daemon, "command", "done");
    upgrade::install(&path);
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count("ready to handle connections", 2);
    wait_until("the next master", || last(&daemon) == before);
    write(&daemon, &configure(&path, "max_requests = 7\n"));
    upgrade::install(&path);
    daemon.signal(Signal::SIGUSR2);
    daemon.wait_for_count("ready to handle connections", 3);
    wait_for_last(&daemon, "takeover", "done");

    let daemon = Daemon::start_kept(|dir| configure(dir, ""));
    let master = daemon.kept_master();
    write(&daemon, "nonsense");
    kill(Pid::from_raw(master as i32), Signal::SIGUSR2).expect("kill");
    let before = wait_for_last(&daemon, "signal", "refused");
    kill(Pid::from_raw(master as i32), Signal::SIGKILL).expect("kill");
    daemon.next_kept_master(master);
    daemon.wait_for_count("ready to handle connections", 2);
    wait_until("the next master", || last(&daemon) == before);
}

fn owner(path: &Path) -> (u32, u32, u32) {
    let data = fs::metadata(path).expect("a socket");
    (data.uid(), data.gid(), data.mode() & 0o777)
}

#[test]
fn an_owner_that_a_reload_takes_away_is_taken_from_the_socket() {
    skip_if!(needs_root());
    let given = "owner = \"www-data\"";
    let configured = |dir: &Path, attributes: &str| {
        let listen = |name: &str| format!("{{ address = \"{}/{name}.sock\"{attributes} }}", dir.display());
        configure(
            dir,
            &format!(
                "listen = {}\nuser = \"www-data\"\nstatus_path = \"/status\"\nstatus_listen = {}\n",
                listen("www"),
                format_args!("\"{}/status.sock\"", dir.display())
            ),
        )
    };
    let daemon = Daemon::start(|dir| configured(dir, &format!(", {given}")));
    let sockets = ["www.sock", "status.sock"].map(|name| daemon.dir.join(name));
    let owners = || sockets.each_ref().map(|path| owner(path));
    let www_data = owners()[0];
    assert_ne!((www_data.0, www_data.1), (0, 0));
    assert_eq!(owners(), [www_data; 2]);
    for (attributes, expected) in [
        ("", (0, 0, 0o660)),
        (", group = \"www-data\"", (0, www_data.1, 0o660)),
        (", mode = \"0606\"", (0, 0, 0o606)),
        (
            ", owner = \"www-data\", mode = \"0600\"",
            (www_data.0, www_data.1, 0o600),
        ),
        (", group = \"daemon\"", (0, 1, 0o660)),
        (", owner = \"www-data\"", www_data),
        (", acl_users = [\"daemon\"]", (0, 0, 0o660)),
    ] {
        write(&daemon, &configured(&daemon.dir, attributes));
        let (code, text) = daemon.said(&["reload"]);
        assert_eq!(code, Some(0), "{attributes}: {text}");
        assert_eq!(owners(), [expected; 2], "{attributes}");
    }
    write(&daemon, &configured(&daemon.dir, ", mode = \"0606\""));
    assert_eq!(daemon.said(&["reload"]).0, Some(0));
    chown(&sockets[0], Some(www_data.0), None).expect("chown");
    assert_eq!(daemon.said(&["reload"]).0, Some(0));
    assert_eq!(owners()[0].0, www_data.0);
}

/// Only root can connect: the daemon isn't ready, and a reload restores the socket's mode.
#[test]
fn a_socket_for_root_alone_is_unreachable() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| configure(dir, ""));
    daemon.wait_for_workers("www", 1);
    wait_until("readiness", || daemon.said(&["health", "--ready"]).0 == Some(0));
    fs::set_permissions(daemon.socket("www"), fs::Permissions::from_mode(0o600)).expect("chmod");
    let text = exited(Some(1), daemon.said(&["health", "--ready"]));
    assert_contains(&text, "www: unreachable: no user except root can connect");
    assert_eq!(daemon.said(&["reload"]).0, Some(0));
    assert_eq!(owner(&daemon.socket("www")).2, 0o666);
    exited(Some(0), daemon.said(&["health", "--ready"]));
}
