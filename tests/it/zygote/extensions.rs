//! Extensions with memory shared between workers: each pool has a separate segment.

use super::{ONDEMAND, PHP, STATIC, member, only_zygote, shared_memory};
use crate::skip::skip_unless;
use crate::support::prelude::*;

const POOLS: [&str; 3] = ["a", "b", "c"];
const CODE: &str = "<?php
    function sum(int $n): int { for ($i = $sum = 0; $i < $n; $i++) { $sum += $i * 3; } return $sum; }
    $yac = new Yac();
    if (isset($_GET['put'])) { apcu_store('key', $_GET['put']); $yac->set('key', $_GET['put']); }
    $jit = opcache_get_status(false)['jit'];
    echo json_encode(['pid' => getmypid(), 'apcu' => apcu_fetch('key'), 'yac' => $yac->get('key'), 'sum' => sum(20000),
        'jit' => $jit['on'] && $jit['enabled'], 'size' => apcu_sma_info(true)['seg_size'], 'compiled' => $jit['buffer_size'] - $jit['buffer_free']]);";

fn extension_dir() -> PathBuf {
    let said = Command::new(format!("php-config{PHP}"))
        .arg("--extension-dir")
        .output()
        .expect("php-config");
    PathBuf::from(String::from_utf8(said.stdout).expect("a path").trim())
}

pub(super) fn lacks_extensions() -> bool {
    let has_them = ["8.2", "8.4"].contains(&PHP) || extension_dir().join("apcu.so").exists();
    skip_unless(has_them, &format!("Debian has no php{PHP}-apcu and php{PHP}-yac"))
}

fn php_ini(dir: &Path) -> PathBuf {
    let place = extension_dir();
    let lines = ["apcu.so", "yac.so"].map(|name| {
        assert!(
            place.join(name).exists(),
            "{name} is missing: packages php{PHP}-apcu and php{PHP}-yac"
        );
        format!("extension = {name}\n")
    });
    let path = dir.join("php.ini");
    fs::write(&path, lines.concat()).expect("php.ini");
    path
}

fn ask(daemon: &Daemon, pool: &str, query: &str) -> Value {
    let answer = daemon.get(pool, &format!("code.php{query}"));
    let said = serde_json::from_str(&answer.body());
    said.unwrap_or_else(|_| panic!("{} {}", answer.text(), String::from_utf8_lossy(&answer.stderr)))
}

fn apart(settings: &str, mode: &str) -> Daemon {
    let values =
        format!(", opcache.jit_buffer_size = \"16M\", opcache.jit = \"{mode}\", apc.shm_size = \"8M\"");
    let daemon = Daemon::start(|dir| {
        let own = format!("php_ini = \"{}\"\n", php_ini(dir).display());
        POOLS
            .map(|name| member(dir, name, settings, &values, &own))
            .concat()
    });
    daemon.write("code.php", CODE);
    for name in ["a", "b"] {
        ask(&daemon, name, &format!("?put=of-{name}"));
    }
    let expected = |name: &str| match name {
        "c" => Value::from(false),
        name => format!("of-{name}").into(),
    };
    for round in 0..3 {
        for name in POOLS {
            let said = ask(&daemon, name, "");
            assert_eq!(
                (&said["apcu"], &said["yac"]),
                (&expected(name), &expected(name)),
                "{round} {name}"
            );
            assert_has(&said, json!({"sum": 599_970_000, "jit": true}));
            assert!(
                said["size"]
                    .as_u64()
                    .is_some_and(|bytes| bytes > 7 << 20 && bytes <= 8 << 20),
                "{said}"
            );
            let pid = said["pid"]
                .as_u64()
                .and_then(|pid| u32::try_from(pid).ok())
                .expect("a pid");
            process::signal(pid, Signal::SIGKILL);
            wait_until("its end", || !daemon.workers(name).contains(&pid));
        }
    }
    only_zygote(&daemon);
    daemon
}

#[test]
fn apcu_yac_and_code_compiled_by_function_are_a_pools_own() {
    skip_if!(lacks_extensions());
    let daemon = apart(STATIC, "function");
    let own = POOLS.map(|name| -> BTreeSet<String> {
        let workers = daemon.wait_for_workers(name, 2);
        let all = workers.into_iter().flat_map(shared_memory);
        all.map(|(inode, _)| inode).collect()
    });
    let zygote: BTreeSet<String> = shared_memory(only_zygote(&daemon))
        .into_iter()
        .map(|(inode, _)| inode)
        .collect();
    for (index, one) in own.iter().enumerate() {
        assert!(one.len() >= 2, "scoreboard and PHP's memory: {one:?}");
        assert!(one.is_disjoint(&zygote));
        for other in &own[index + 1..] {
            assert!(one.is_disjoint(other), "{one:?} {other:?}");
        }
    }
}

#[test]
fn apcu_yac_and_code_compiled_by_tracing_are_a_pools_own_and_outlive_its_workers() {
    if !lacks_extensions() {
        apart(ONDEMAND, "tracing");
    }
}
