//! OPcache restarts, when full or by request, and late changes: each stays in its own pool.

use super::{STATIC, member, only_zygote, user};
use crate::support::prelude::*;

const STATUS: &str = "<?php $all = opcache_get_status(); $now = $all['opcache_statistics']; $memory = $all['memory_usage'];
    echo json_encode(['oom' => $now['oom_restarts'], 'manual' => $now['manual_restarts'], 'pending' => $all['restart_pending'],
        'sound' => $memory['used_memory'] > 0 && $memory['used_memory'] < 64 << 20 && $now['blacklist_misses'] == 0,
        'code' => isset($all['scripts'][__DIR__ . '/code.php'])]);";

fn status(daemon: &Daemon, pool: &str) -> Value {
    let said = daemon.get(pool, "status.php").body();
    let status: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(status["sound"], true, "{said}");
    status
}

fn start(values: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        let values = format!(", opcache.revalidate_freq = 0{values}");
        member(dir, "a", STATIC, &values, "") + &member(dir, "b", STATIC, &values, "")
    });
    daemon.write("status.php", STATUS);
    daemon.write("code.php", "<?php echo 'code';");
    daemon.write("reset.php", "<?php echo json_encode(opcache_reset());");
    for name in ["a", "b"] {
        daemon.wait_for_workers(name, 2);
        assert_eq!(daemon.get(name, "code.php").body(), "code");
    }
    daemon
}

#[test]
fn memory_that_is_full_of_what_is_outdated_is_emptied_in_its_pool_alone() {
    let daemon = start(
        ", opcache.memory_consumption = 8, opcache.interned_strings_buffer = 1, opcache.max_wasted_percentage = 1",
    );
    let path = daemon.dir.join("large.php");
    let mut version = 0_u64;
    wait_until("a restart because the memory is full", || {
        version += 1;
        let entries: String = (0..4000)
            .map(|n| format!("'k{version}-{n}' => [{n}, 'v{version}-{n}'],\n"))
            .collect();
        write_file(
            &path,
            format!("<?php $all = [{entries}]; echo count($all), ' of {version}';"),
        );
        let file = fs::File::options().append(true).open(&path).expect("the script");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + version);
        file.set_modified(time).expect("utimes");
        let expected = format!("4000 of {version}");
        assert_eq!(daemon.get("a", "large.php").body(), expected);
        assert_eq!(daemon.get("a", "large.php").body(), expected);
        status(&daemon, "a")["oom"] == 1
    });
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    let of_b = status(&daemon, "b");
    assert_eq!((&of_b["oom"], &of_b["code"]), (&0.into(), &true.into()), "{of_b}");
    only_zygote(&daemon);
}

#[test]
fn who_keeps_opcache_from_starting_again_is_killed_in_its_pool_alone() {
    let daemon = start(", opcache.force_restart_timeout = 1");
    let hold = "<?php file_put_contents(__DIR__ . '/holds-' . $_GET['pool'], getmypid()); \
                while (!file_exists(__DIR__ . '/go')) { usleep(2000); clearstatcache(); } echo 'held';";
    daemon.write("hold.php", hold);
    let mut held = ["a", "b"].map(|pool| {
        let params = Params::get(&daemon.dir, "hold.php", &format!("pool={pool}"));
        daemon.send(pool, &params)
    });
    let holders = ["a", "b"].map(|pool| {
        let file = daemon.dir.join(format!("holds-{pool}"));
        until("the request to be under way", || {
            fs::read_to_string(&file).ok()?.parse::<u32>().ok()
        })
    });
    assert_eq!(daemon.get("a", "reset.php").body(), "true");
    assert_eq!(status(&daemon, "a")["pending"], true);
    wait_until("the restart", || {
        daemon.get("a", "code.php");
        status(&daemon, "a")["manual"] == 1
    });
    daemon.wait_for(&format!("child {} exited on signal", holders[0]));
    assert!(process::runs(holders[1]));
    daemon.write("go", "");
    let [of_a, of_b] = &mut held;
    assert!(
        !of_a
            .answer()
            .is_ok_and(|answer| answer.ended && answer.body() == "held")
    );
    assert_eq!(of_b.answer().expect("answer").body(), "held");
    let of_b = status(&daemon, "b");
    assert_has(&of_b, json!({"manual": 0, "pending": false, "code": true}));
    only_zygote(&daemon);
}

#[test]
fn resets_under_load_change_no_answer() {
    let daemon = start("");
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let (socket, dir) = (daemon.socket(["a", "b"][number % 2]), daemon.dir.clone());
            std::thread::spawn(move || {
                for round in 0..60 {
                    let script = if number == 0 && round % 7 == 0 {
                        "reset.php"
                    } else {
                        "code.php"
                    };
                    let mut client = Client::connect(&socket).expect("connect");
                    let answer = client
                        .request(&Params::get(&dir, script, ""), b"")
                        .expect("answer");
                    assert!(
                        ["code", "true", "false"].contains(&answer.body().as_str()),
                        "{}",
                        answer.text()
                    );
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("right answers");
    }
    assert!(status(&daemon, "a")["manual"].as_u64() > Some(0));
    assert_eq!(status(&daemon, "b")["manual"], 0);
}

#[test]
fn scripts_in_root_directories_are_cached_with_validate_root() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let pools = ["a", "b"].map(|name| {
            let root = dir.join(name);
            fs::create_dir(&root).expect("directory");
            let code = format!("<?php echo '{name} ', opcache_is_script_cached(__FILE__) ? 'cached' : 'not', ' ', posix_getuid();");
            fs::write(root.join("in.php"), code).expect("script");
            let settings = format!("{STATIC}chroot = \"{}\"\n", root.display());
            member(dir, name, &settings, ", opcache.validate_root = 1", "")
        });
        pools.concat()
    });
    for name in ["a", "b"] {
        daemon.wait_for_workers(name, 2);
        let ask = || {
            let params = Params::get(Path::new(""), "in.php", "");
            daemon.ask(name, &params).body()
        };
        ask();
        assert_eq!(ask(), format!("{name} cached {}", user(name)));
    }
    only_zygote(&daemon);
}

#[test]
fn huge_pages_for_the_code_are_asked_for_once_and_harm_nothing() {
    let daemon = start(", opcache.huge_code_pages = 1");
    for name in ["a", "b"] {
        assert_eq!(status(&daemon, name)["code"], true);
    }
    only_zygote(&daemon);
}
