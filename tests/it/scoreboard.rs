//! The status page, and slots of workers that lie.

use crate::support::prelude::*;

const SETTINGS: &str =
    "pm = \"static\"\nmax_children = 4\nstatus_path = \"/status\"\nping.path = \"/ping\"\n";

fn status(daemon: &Daemon, query: &str) -> String {
    let params = Params::get(&daemon.dir, "status", query);
    daemon.ask("www", &params).body()
}

fn json(daemon: &Daemon) -> Value {
    serde_json::from_str(&status(daemon, "json&full")).expect("JSON")
}

#[test]
fn status_and_ping_answer_and_count() {
    let daemon = Daemon::start(|dir| php_pool(dir, SETTINGS, ""));
    daemon.wait_for_workers("www", 4);
    daemon.write("pid.php", "<?php echo getmypid();");
    for _ in 0..5 {
        assert!(daemon.get("www", "pid.php").ended);
    }
    assert_eq!(daemon.get("www", "ping").body(), "pong");
    let page = json(&daemon);
    assert_eq!(page["pool"], "www");
    assert_eq!(page["process manager"], "static");
    assert_eq!(page["accepted conn"], 7);
    assert_eq!(page["total processes"], 4);
    assert_eq!(page["processes"].as_array().expect("processes").len(), 4);
    let text = status(&daemon, "");
    assert_starts(&text, "pool:                 www\nprocess manager:      static\n");
    // Workers may become idle a moment after their answer.
    wait_until("only the answering worker to be active", || {
        json(&daemon)["active processes"] == 1
    });
    let own = page["processes"]
        .as_array()
        .expect("list")
        .iter()
        .find(|p| p["state"] == "Running")
        .expect("own");
    assert_eq!(own["request uri"], "/status?json&full");
}

#[test]
fn the_listen_queue_of_a_unix_socket_is_seen() {
    let daemon = Daemon::start(|dir| php_pool(dir, SETTINGS, ""));
    daemon.wait_for_workers("www", 4);
    assert!(json(&daemon)["listen queue len"].as_u64().expect("number") > 0);
}

#[test]
fn the_longest_listen_queue_of_a_full_pool_is_remembered() {
    let settings = "pm = \"static\"\nmax_children = 2\nmax_requests = 50\nstatus_path = \"/status\"\n";
    let daemon = Daemon::start(|dir| php_pool(dir, settings, ""));
    daemon.wait_for_workers("www", 2);
    daemon.write("slow.php", "<?php usleep(20000); echo 'done';");
    let idle = json(&daemon);
    assert_eq!(idle["max listen queue"], 0, "{idle}");
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert_eq!(daemon.get("www", "slow.php").body(), "done");
                }
            });
        }
    });
    let page = json(&daemon);
    assert!(
        page["max listen queue"].as_u64().expect("a number") >= 18,
        "{page}"
    );
    assert_eq!(page["listen queue"], 0, "{page}");
}

#[test]
fn nonsense_in_slots_makes_nonsense_in_the_status_and_nothing_else() {
    let daemon = Daemon::start(|dir| php_pool(dir, SETTINGS, ""));
    let workers = daemon.wait_for_workers("www", 4);
    let script = "<?php $begun = hrtime(true); while (hrtime(true) - $begun < 1e6); echo getmypid();";
    daemon.write("pid.php", script);
    let board = fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
        .expect("the master's descriptors")
        .filter_map(Result::ok)
        .find(|fd| {
            let name = fs::read_link(fd.path()).unwrap_or_default();
            name.to_string_lossy().contains("memfd:forkyard www")
                && std::fs::OpenOptions::new().write(true).open(fd.path()).is_ok()
        })
        .expect("the scoreboard");
    let board = std::fs::OpenOptions::new()
        .write(true)
        .open(board.path())
        .expect("open");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        scope.spawn(|| {
            let mut state = 7_u64;
            while !stop.load(Ordering::Relaxed) {
                for slot in 1..=4_u64 {
                    let noise: Vec<u8> = (0..512)
                        .flat_map(|_| {
                            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            (state >> 13).to_ne_bytes()
                        })
                        .collect();
                    board.write_all_at(&noise, slot * 4096).expect("write");
                }
            }
        });
        for round in 0..200 {
            let answer = daemon.get("www", "pid.php");
            assert!(answer.body().parse::<u32>().is_ok(), "round {round}: {answer:?}");
            if round % 20 == 0 {
                let text = status(
                    &daemon,
                    ["full", "json&full", "xml&full", "html&full"][round / 20 % 4],
                );
                assert_contains(&text, "www");
            }
        }
    });
    assert_eq!(daemon.workers("www"), workers, "nobody was killed or replaced");
}
