//! OPcache in all its modes, across reloads.

use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 2\n";

fn reload(daemon: &Daemon) {
    daemon.reload_until("reload done");
    wait_until("the old processes to leave", || {
        daemon.workers("www").len() == 2 && daemon.preloaders("www").len() == 1
    });
}

#[test]
fn a_reload_takes_up_new_code_where_php_does_not_look() {
    let values =
        "php_admin_value = { opcache.validate_timestamps = 0, opcache.file_update_protection = 0 }\n";
    let daemon = Daemon::start(|dir| php_pool(dir, STATIC, values));
    daemon.write("code.php", "<?php echo 'old';");
    assert_eq!(daemon.get("www", "code.php").body(), "old");
    daemon.write("code.php", "<?php echo 'new';");
    assert_eq!(daemon.get("www", "code.php").body(), "old");
    let old = daemon.workers("www");
    reload(&daemon);
    assert_eq!(daemon.get("www", "code.php").body(), "new");
    assert!(daemon.workers("www").iter().all(|pid| !old.contains(pid)));
}

#[test]
fn preloaded_code_is_there_and_a_reload_takes_up_the_new() {
    let preload = |dir: &Path| {
        write_file(
            dir.join("preload.php"),
            "<?php class Greeting { const TEXT = 'hello'; } file_put_contents('php://stderr', posix_geteuid() . PHP_EOL);",
        );
        let value = "php_admin_value = { opcache.preload = \"DIR/preload.php\" }\n";
        php_pool(dir, STATIC, value)
    };
    let daemon = Daemon::start(preload);
    daemon.write("greet.php", "<?php echo Greeting::TEXT, posix_geteuid();");
    let answer = daemon.get("www", "greet.php").body();
    let uid = answer.strip_prefix("hello").expect("preloaded").to_owned();
    daemon.wait_for(&format!("said: \"{uid}\""));
    daemon.write("preload.php", "<?php class Greeting { const TEXT = 'hi'; }");
    reload(&daemon);
    assert_eq!(daemon.get("www", "greet.php").body(), format!("hi{uid}"));
}

#[test]
fn the_jit_gives_right_answers() {
    let values = "php_admin_value = { opcache.jit = \"tracing\", opcache.jit_buffer_size = \"16M\" }\n";
    let daemon = Daemon::start(|dir| php_pool(dir, &format!("{STATIC}reload = \"always\"\n"), values));
    daemon.write(
        "sum.php",
        "<?php function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
        $sum = 0; for ($i = 0; $i < 300000; $i++) { $sum = ($sum * 31 + $i) % 1000003; }
        $jit = opcache_get_status()['jit'];
        echo fib(20), ' ', $sum, ' ', $jit['on'] ? 'jit' : 'none', ' ', $jit['buffer_size'] > $jit['buffer_free'] ? 'used' : 'unused';",
    );
    let sum = (0..300_000_u64).fold(0, |sum, i| (sum * 31 + i) % 1_000_003);
    let expected = format!("6765 {sum} jit used");
    for _ in 0..6 {
        assert_eq!(daemon.get("www", "sum.php").body(), expected);
    }
    reload(&daemon);
    for _ in 0..6 {
        assert_eq!(daemon.get("www", "sum.php").body(), expected);
    }
}

#[test]
fn the_file_cache_outlives_a_reload() {
    let configure = |dir: &Path| {
        let cache = dir.join("cache");
        make_folder(&cache);
        let values = format!(
            "warm_up = 0\nphp_admin_value = {{ opcache.file_cache = \"{}\", opcache.file_update_protection = 0 }}\n",
            cache.display()
        );
        php_pool(dir, &format!("{STATIC}reload = \"always\"\n"), &values)
    };
    let daemon = Daemon::start(configure);
    daemon.write("code.php", "<?php echo 'code';");
    daemon.write(
        "cached.php",
        "<?php echo opcache_is_script_cached(__DIR__ . '/code.php') ? 'memory' : 'no', opcache_get_status()['scripts'] ? '' : '-';",
    );
    assert_eq!(daemon.get("www", "code.php").body(), "code");
    let files = || {
        fn count(dir: &Path) -> usize {
            let entries = fs::read_dir(dir).expect("directory").map_while(Result::ok);
            entries
                .map(|entry| {
                    let path = entry.path();
                    if path.is_dir() { count(&path) } else { 1 }
                })
                .sum()
        }
        count(&daemon.dir.join("cache"))
    };
    assert_eq!(files(), 1);
    reload(&daemon);
    assert_eq!(daemon.get("www", "cached.php").body(), "no");
    assert_eq!(daemon.get("www", "code.php").body(), "code");
    assert_eq!(daemon.get("www", "cached.php").body(), "memory");
    assert_eq!(files(), 2);
}

#[test]
fn each_pool_has_an_opcache_of_its_own_and_of_its_own_size() {
    let named = |dir: &Path, name: &str, megabytes: u32| {
        let application = format!(
            "runtime = \"php\"\nversion = \"{PHP_VERSION}\"\nphp_admin_value = {{ opcache.memory_consumption = {megabytes}, \
             opcache.file_update_protection = 0 }}\n"
        );
        pool(dir, name, STATIC, &application)
    };
    let daemon = Daemon::start(|dir| named(dir, "a", 16) + &named(dir, "b", 32));
    daemon.write(
        "memory.php",
        "<?php $s = opcache_get_status(); $m = $s['memory_usage']; echo ($m['used_memory'] + $m['free_memory'] + $m['wasted_memory']) >> 20, \
         ' ', implode(' ', array_map('basename', array_keys($s['scripts'])));",
    );
    daemon.write("only.php", "<?php echo 'only';");
    assert_eq!(daemon.get("a", "only.php").body(), "only");
    let (a, b) = (
        daemon.get("a", "memory.php").body(),
        daemon.get("b", "memory.php").body(),
    );
    assert_starts(&a, "16 ");
    assert_contains(&a, "only.php");
    assert_starts(&b, "32 ");
    assert_lacks(&b, "only.php");
}
