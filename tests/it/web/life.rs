//! The web process starts, is replaced, and ends.

use super::{Place, Site, TRANSPORTS, Transport, configuration, start_by, web_processes};
use crate::it::upgrade;
use crate::support::prelude::*;

#[test]
fn the_process_has_few_rights() {
    each(TRANSPORTS, |transport| {
        let site = Site::start(transport, 1);
        let [web] = site.processes()[..] else {
            panic!("one process");
        };
        assert_eq!(process::status_line(web, "Seccomp").as_deref(), Some("2"));
        assert_eq!(process::status_line(web, "NoNewPrivs").as_deref(), Some("1"));
        if is_root() {
            let own = nix::unistd::User::from_name("forkyard").expect("users");
            let nobody = || {
                nix::unistd::User::from_name("nobody")
                    .expect("users")
                    .expect("nobody")
            };
            let uid = own.unwrap_or_else(nobody).uid;
            let line = format!("{uid}\t{uid}\t{uid}\t{uid}");
            assert_eq!(process::status_line(web, "Uid"), Some(line));
        }
        let maps = read_file(format!("/proc/{web}/maps"));
        assert_lacks(&maps, "memfd:forkyard");
        if let Place::Unix(path) = &site.place {
            let data = fs::metadata(path).expect("the socket");
            let own = nix::unistd::geteuid().as_raw();
            assert_eq!((data.mode() & 0o777, data.uid()), (0o600, own));
        }
    });
}

#[test]
fn a_daemon_of_an_ordinary_user_has_numbers_too() {
    if needs_root() {
        return;
    }
    let dir = directory();
    let user = nix::unistd::User::from_name("www-data")
        .expect("users")
        .expect("www-data");
    chown(dir.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw())).expect("chown");
    let place = Place::Unix(dir.path().join("web.sock"));
    let text = configuration(dir.path(), &place, 1).replace("user = \"www-data\"\n", "");
    fs::write(dir.path().join("forkyard.toml"), text).expect("configuration");
    let command = as_user(forkyard(&["run"], dir.path()), user.uid.as_raw());
    let _daemon = Daemon::launch(dir.path(), command).ready();
    place.wait_for("/health/ready", 200);
    assert_eq!(place.get("/metrics").status, 200);
    let data = fs::metadata(dir.path().join("web.sock")).expect("the socket");
    assert_eq!((data.mode() & 0o777, data.uid()), (0o600, user.uid.as_raw()));
}

#[test]
fn another_process_takes_the_place_of_a_killed_or_stopped_one() {
    each(TRANSPORTS, |transport| {
        let site = Site::start(transport, 1);
        let mut before = site.processes();
        for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
            process::signal(before[0], signal);
            let after = until("another process", || {
                Some(site.processes()).filter(|now| now.len() == 1 && *now != before)
            });
            site.place.wait_for("/health/live", 200);
            before = after;
        }
        assert_contains(&site.daemon.log(), "the web process (pid ");
        assert_eq!(site.daemon.get("www", "a.php").body(), "a");
    });
}

#[test]
fn a_reload_moves_opens_and_closes_the_address() {
    each(TRANSPORTS, |transport| {
        let site = Site::start(transport, 1);
        let (daemon, dir) = (&site.daemon, &site.daemon.dir);
        let before = site.processes();
        daemon.write("forkyard.toml", &configuration(dir, &site.place, 2));
        daemon.reload_until("the new workers serve");
        let line = "forkyard_pool_workers_max{pool=\"www\"}";
        wait_until("the new numbers", || {
            site.place.get("/metrics").number(line) > 1.5
        });
        assert_eq!(site.processes(), before, "the same process");

        let other = match transport {
            Transport::Tcp => Place::Tcp(free_port()),
            Transport::Unix => Place::Unix(dir.join("other.sock")),
        };
        daemon.write("forkyard.toml", &configuration(dir, &other, 2));
        daemon.signal(Signal::SIGUSR2);
        other.wait_for("/health/ready", 200);
        wait_until("the old address to be closed", || site.place.connect().is_err());
        wait_until("one process", || site.processes().len() == 1);

        daemon.write(
            "forkyard.toml",
            &configuration(dir, &other, 2).replace(&other.key(), ""),
        );
        daemon.signal(Signal::SIGUSR2);
        wait_until("the address to be closed", || other.connect().is_err());
        wait_until("no process", || site.processes().is_empty());
        assert!(!dir.join("other.sock").exists());

        daemon.write("forkyard.toml", &configuration(dir, &site.place, 2));
        daemon.signal(Signal::SIGUSR2);
        site.place.wait_for("/health/ready", 200);
    });
}

#[test]
fn a_taken_address_refuses_the_start_and_the_reload() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let site = Site::start(Transport::Unix, 1);
    let dir = &site.daemon.dir;
    site.daemon
        .write("forkyard.toml", &configuration(dir, &Place::Tcp(port), 1));
    site.daemon.signal(Signal::SIGUSR2);
    let line = site.daemon.wait_for("the old one stays in force: web: ");
    assert_contains(&line, &format!("127.0.0.1:{port}"));
    assert_eq!(site.place.get("/health/ready").status, 200);
    let other = directory();
    fs::write(
        other.path().join("forkyard.toml"),
        configuration(other.path(), &Place::Tcp(port), 1),
    )
    .expect("configuration");
    let (code, text) = said_by(&mut forkyard(&["run"], other.path()));
    assert_ne!(code, Some(0));
    assert_contains(&text, "web: another process already listens on 127.0.0.1:");
}

#[test]
fn a_lost_socket_file_is_made_again_by_a_reload() {
    let site = Site::start(Transport::Unix, 1);
    fs::remove_file(site.daemon.dir.join("web.sock")).expect("unlink");
    site.daemon.signal(Signal::SIGUSR2);
    site.place.wait_for("/health/ready", 200);
}

#[test]
fn an_upgrade_loses_no_client() {
    each(TRANSPORTS, |transport| {
        let (daemon, place) = start_by(transport, 1, upgrade::installed);
        daemon.wait_for_workers("www", 1);
        let load = Load::start(1, |_| {
            let place = place.clone();
            move || place.try_get("/health/live").map(|got| got.status)
        });
        let before = web_processes(daemon.pid());
        for round in 1..=2 {
            assert_success(&daemon.at_socket(&["upgrade"]).output().expect("forkyard"));
            daemon.wait_for_count("the new workers serve", round);
            wait_until("one process of the new program", || {
                let now = web_processes(daemon.pid());
                now.len() == 1 && (round == 2 || now != before)
            });
            upgrade::install(&daemon.dir);
        }
        let seen = load.end();
        assert!(
            seen.len() > 2 && seen.iter().all(|status| *status == Some(200)),
            "{seen:?}"
        );
    });
}

#[test]
fn the_next_master_goes_on_at_the_address() {
    each(TRANSPORTS, |transport| {
        let (daemon, place) = start_by(transport, 1, |dir| forkyard(&["run", "--keeper"], dir));
        let master = daemon.kept_master();
        let before = web_processes(master);
        crate::it::keeper::until_known(daemon.pid(), 1);
        process::signal(master, Signal::SIGKILL);
        let next = daemon.next_kept_master(master);
        place.wait_for("/health/ready", 200);
        let after = until("the next process", || {
            Some(web_processes(next)).filter(|it| it.len() == 1)
        });
        assert_ne!(before, after);
        wait_until("the old process to end", || !process::runs(before[0]));
    });
}

#[test]
fn a_killed_master_s_web_process_ends() {
    let mut site = Site::start(Transport::Tcp, 1);
    let before = site.processes();
    site.daemon.signal(Signal::SIGKILL);
    let _ = site.daemon.wait();
    process::wait_for_ends(&before);
}
