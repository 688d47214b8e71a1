//! While requests come: other programs take over, masters and zygotes are killed.

use super::{FRESH, ONDEMAND, PHP, STATIC, member, only_zygote, two, user};
use crate::it::upgrade::{install, installed};
use crate::support::prelude::*;

const CODE: &str = "<?php echo 'code';";

/// Clients of both pools; an answer that is not right is a problem.
fn clients(dir: &Path) -> Load<Result<(), String>> {
    Load::start(3, |first| {
        let sockets = ["a.sock", "b.sock"].map(|name| dir.join(name));
        let mut sockets = sockets.into_iter().cycle().skip(first);
        let params = Params::get(dir, "code.php", "");
        move || {
            let socket = sockets.next().expect("a socket");
            match Client::connect(&socket).and_then(|mut client| client.request(&params, b"")) {
                Ok(answer) if answer.ended && answer.body() == "code" => Ok(()),
                Ok(answer) => Err(format!("{}: {}", socket.display(), answer.text())),
                Err(error) => Err(format!("{}: {error}", socket.display())),
            }
        }
    })
}

fn assert_served(load: Load<Result<(), String>>) {
    let problems = load.end().into_iter().filter_map(Result::err);
    assert_eq!(problems.collect::<Vec<_>>(), [""; 0]);
}

fn configure(dir: &Path) -> String {
    format!(
        "[global]\nlog_level = \"debug\"\n{}{}",
        member(dir, "a", STATIC, "", ""),
        member(dir, "b", ONDEMAND, "", "")
    )
}

#[test]
fn upgrades_under_load_lose_no_request_and_each_program_has_a_zygote_of_its_own() {
    let daemon = Daemon::start_by(configure, installed);
    let path = daemon.dir.clone();
    daemon.write("code.php", CODE);
    daemon.write("pid.php", "<?php echo getmypid(), ' ', posix_getuid();");
    daemon.wait_for_workers("a", 2);
    let load = clients(&path);
    load.wait_for(50);
    for round in 1..=3 {
        let (zygote, workers) = (only_zygote(&daemon), daemon.workers("a"));
        install(&path);
        daemon.signal(Signal::SIGUSR2);
        daemon.wait_for_count("the new workers serve", round);
        wait_until("workers of the new program's zygote", || {
            let now = daemon.workers("a");
            let is_new = now.len() == 2 && now.iter().all(|pid| !workers.contains(pid));
            is_new && daemon.preloaders("zygote").iter().all(|pid| *pid != zygote)
        });
        load.wait_for(50);
        for name in ["a", "b"] {
            let said = daemon.get(name, "pid.php").body();
            assert!(said.ends_with(&format!(" {}", user(name))), "{said}");
        }
    }
    assert_served(load);
}

#[test]
fn masters_killed_under_load_lose_no_request() {
    let daemon = Daemon::start_kept(configure);
    let path = daemon.dir.clone();
    daemon.write("code.php", CODE);
    let load = clients(&path);
    load.wait_for(50);
    for round in 1..=3 {
        let first = daemon.kept_master();
        load.wait_for(20);
        process::signal(first, Signal::SIGKILL);
        daemon.next_kept_master(first);
        daemon.wait_for_count("workers go on", round);
        load.wait_for(50);
    }
    assert_served(load);
}

#[test]
fn zygotes_killed_while_they_make_workers_cost_no_request_and_no_memory_is_used_with_another() {
    let daemon = Daemon::start(|dir| two(dir, ONDEMAND, ""));
    daemon.write("code.php", CODE);
    daemon.write(
        "sound.php",
        "<?php $now = opcache_get_status(false)['memory_usage']; echo $now['used_memory'] > 0 ? 'sound ' : 'wrong ',
            ($now['used_memory'] + $now['free_memory']) >> 20, ' ', getmypid();",
    );
    let workers = || -> Vec<u32> { ["a", "b"].iter().flat_map(|name| daemon.workers(name)).collect() };
    for _ in 0..6 {
        for name in ["a", "b"] {
            assert_eq!(daemon.get(name, "code.php").body(), "code");
        }
        // The process that forks all the new workers is killed while it does so.
        for worker in workers() {
            process::signal(worker, Signal::SIGKILL);
        }
        wait_until("no worker", || workers().is_empty());
        let clients = ["a", "b"].map(|name| {
            let params = Params::get(&daemon.dir, "sound.php", "");
            daemon.send(name, &params)
        });
        for zygote in daemon.preloaders("zygote") {
            process::signal(zygote, Signal::SIGKILL);
        }
        for mut client in clients {
            let said = client.answer().expect("answer").body();
            assert!(said.starts_with("sound 128 "), "{said} {}", daemon.log());
        }
    }
}

#[test]
fn three_hundred_users_have_three_hundred_opcaches_of_one_zygote() {
    skip_if!(needs_root());
    const COUNT: u32 = 300;
    let name = |number: u32| format!("user{number:03}");
    let daemon = Daemon::start(|dir| {
        let pools = (0..COUNT).map(|number| {
            let settings = format!(
                "user = \"{0}\"\ngroup = \"{0}\"\npm = \"ondemand\"\nmax_children = 2\nprocess_idle_timeout = \"60s\"\n\
                 env = {{ NUMBER = \"{number}\" }}\n",
                80_000 + number
            );
            let application = format!(
                "runtime = \"php\"\nversion = \"{PHP}\"\npreloader = \"zygote\"\nphp_admin_value = {{ {FRESH} }}\n"
            );
            pool(dir, &name(number), &settings, &application)
        });
        pools.collect()
    });
    daemon.write(
        "who.php",
        "<?php foreach (explode(\"\\n\", file_get_contents('/proc/self/maps')) as $line) {
            if (str_contains($line, 'memfd:forkyard php')) { $inodes[] = preg_split('/ +/', $line)[4]; }
        }
        echo posix_getuid(), ' ', posix_getgid(), ' ', json_encode(posix_getgroups()), ' ', getenv('NUMBER'), ' ',
            implode(',', array_unique($inodes)), ' ', count(opcache_get_status()['scripts']), ' ', getmypid();",
    );
    let mut inodes = BTreeSet::new();
    let mut pids = Vec::new();
    for number in 0..COUNT {
        let said = daemon.get(&name(number), "who.php").body();
        let words: Vec<&str> = said.split(' ').collect();
        let id = (80_000 + number).to_string();
        let expected = [id.as_str(), &id, &format!("[{id}]"), &number.to_string()];
        assert_eq!(words[..4], expected, "{said}");
        assert_eq!(words[5], "1", "it has its own scripts only: {said}");
        assert!(inodes.insert(words[4].to_owned()), "{said}");
        pids.push(words[6].parse::<u32>().expect("a pid"));
    }
    only_zygote(&daemon);
    for pid in pids {
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            let line = process::status_line(pid, set).expect("a line");
            assert_eq!(line.trim(), "0000000000000000", "{set} of {pid}");
        }
    }
}
