//! One start of PHP for pools of all users, with a separate OPcache for each.

mod alike;
mod apart;
mod extensions;
mod handover;
mod hostile;
mod image;
mod lives;
mod restarts;
mod settings;
mod unfit;
mod usual;

use crate::support::prelude::*;

const PHP: &str = env!("FORKYARD_PHP");
const STATIC: &str = "pm = \"static\"\nmax_children = 2\n";
const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 2\nprocess_idle_timeout = \"1s\"\n";
const FRESH: &str = "opcache.file_update_protection = 0";
const CACHED: &str = "<?php echo opcache_is_script_cached(__DIR__ . '/code.php') ? 'cached' : 'not';";
const FIRST_USER: u32 = 70_001;

fn user(name: &str) -> u32 {
    match is_root() {
        true => FIRST_USER + u32::from(name.as_bytes()[0] - b'a'),
        false => nix::unistd::getuid().as_raw(),
    }
}

fn member(dir: &Path, name: &str, settings: &str, values: &str, application: &str) -> String {
    let user = match is_root() {
        true => format!("user = \"{0}\"\ngroup = \"{0}\"\n", user(name)),
        false => String::new(),
    };
    let application = format!(
        "runtime = \"php\"\nversion = \"{PHP}\"\npreloader = \"zygote\"\n\
         php_admin_value = {{ {FRESH}{values} }}\n{application}"
    );
    pool(dir, name, &format!("{user}{settings}"), &application)
}

fn two(dir: &Path, settings: &str, values: &str) -> String {
    member(dir, "a", settings, values, "") + &member(dir, "b", settings, values, "")
}

fn start(settings: &str, values: &str) -> Daemon {
    let daemon = Daemon::start(|dir| two(dir, settings, values));
    daemon.write("code.php", "<?php echo 'code';");
    daemon.write("cached.php", CACHED);
    daemon.write("pid.php", "<?php echo getmypid();");
    if settings == STATIC {
        daemon.wait_for_workers("a", 2);
        daemon.wait_for_workers("b", 2);
    }
    daemon
}

fn pid(daemon: &Daemon, pool: &str) -> u32 {
    daemon.get(pool, "pid.php").body().parse().expect("a pid")
}

fn only_zygote(daemon: &Daemon) -> u32 {
    until("one zygote and no other preloader", || {
        let mut all = process::children(daemon.pid());
        all.retain(|pid| process::title(*pid).starts_with("forkyard: preloader"));
        match (all.as_slice(), daemon.preloaders("zygote").as_slice()) {
            ([pid], [zygote]) if pid == zygote => Some(*pid),
            _ => None,
        }
    })
}

fn shared_memory(pid: u32) -> BTreeSet<(String, String)> {
    let text = read_file(format!("/proc/{pid}/smaps"));
    let mut found = BTreeSet::new();
    let mut current = (String::new(), String::new());
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if flags.contains(" sh") && flags.contains(" mw") {
                found.insert(current.clone());
            }
        } else if line.split(' ').next().is_some_and(|word| word.contains('-')) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            current = (format!("{} {}", words[3], words[4]), words[1].to_owned());
        }
    }
    found
}

#[test]
fn one_start_serves_pools_of_several_users_and_each_has_its_own_opcache() {
    let daemon = start(STATIC, "");
    for name in ["a", "b"] {
        for worker in daemon.wait_for_workers(name, 2) {
            let id = user(name).to_string();
            let own = [id.clone(), id];
            wait_until("the worker to become its user's", || {
                process::user_and_group(worker) == own
            });
        }
    }
    only_zygote(&daemon);
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    for _ in 0..4 {
        assert_eq!(
            daemon.get("a", "cached.php").body(),
            "cached",
            "in all of its workers"
        );
        assert_eq!(daemon.get("b", "cached.php").body(), "not");
    }
    daemon.write("reset.php", "<?php opcache_reset(); echo 'reset';");
    assert_eq!(daemon.get("b", "code.php").body(), "code");
    assert_eq!(daemon.get("a", "reset.php").body(), "reset");
    assert_eq!(daemon.get("b", "cached.php").body(), "cached");
}

#[test]
fn what_was_compiled_outlives_the_workers() {
    let daemon = start(ONDEMAND, "");
    let first = pid(&daemon, "a");
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    let zygote = only_zygote(&daemon);
    wait_until("the workers to leave", || daemon.workers("a").is_empty());
    assert_eq!(daemon.get("a", "cached.php").body(), "cached");
    assert_ne!(pid(&daemon, "a"), first);
    assert_eq!(only_zygote(&daemon), zygote);
}

#[test]
fn a_pool_that_is_not_used_for_long_lets_go_of_its_memory_and_the_zygote_stays() {
    let daemon = Daemon::start(|dir| {
        let idle = "preloader_idle_timeout = \"1s\"\n";
        member(dir, "a", ONDEMAND, "", idle) + &member(dir, "b", ONDEMAND, "", idle)
    });
    daemon.write("code.php", "<?php echo 'code';");
    daemon.write("cached.php", CACHED);
    assert_eq!(daemon.get("a", "code.php").body(), "code");
    let zygote = only_zygote(&daemon);
    let held = || {
        let entries = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("descriptors");
        let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets
            .filter(|target| target.to_string_lossy().starts_with("/memfd:forkyard php"))
            .count()
    };
    wait_until("the pool's memory to be let go", || held() == 0);
    assert_eq!(daemon.get("a", "cached.php").body(), "not");
    assert_eq!(daemon.get("b", "code.php").body(), "code");
    assert_eq!(only_zygote(&daemon), zygote);
}

#[test]
fn the_jit_and_a_restart_of_opcache_are_a_pools_own() {
    let daemon = start(
        STATIC,
        ", opcache.jit_buffer_size = \"16M\", opcache.jit = \"function\"",
    );
    daemon.write(
        "jit.php",
        "<?php $jit = opcache_get_status(false)['jit']; echo $jit['on'] ? 'on ' : 'off ', $jit['buffer_size'] - $jit['buffer_free'];",
    );
    let many: String = (0..50)
        .map(|n| format!("function f{n}($n) {{ $s = 0; for ($i = 0; $i < $n; $i++) {{ $s += $i * {n}; }} return $s; }}\n"))
        .collect();
    daemon.write("many.php", &format!("<?php {many} echo f7(1000);"));
    let used = |pool: &str| {
        let text = daemon.get(pool, "jit.php").body();
        let bytes = text.strip_prefix("on ").unwrap_or_else(|| panic!("{text}"));
        bytes.parse::<u64>().expect("a number")
    };
    used("b");
    let before = used("b");
    assert_eq!(daemon.get("a", "many.php").body(), "3496500");
    assert!(used("a") > before + 1000, "it was compiled to machine code");
    assert_eq!(used("b"), before, "and nothing of it is in the other's buffer");
    assert_eq!(daemon.get("b", "many.php").body(), "3496500");
}

#[test]
fn scripts_run_alike_by_a_zygote_and_by_an_own_preloader() {
    let daemon = Daemon::start(|dir| {
        member(dir, "a", STATIC, "", "")
            + &member(dir, "b", STATIC, "", "").replace("preloader = \"zygote\"", "preloader = \"own\"")
    });
    daemon.write(
        "all.php",
        "<?php
        $all = [get_defined_functions()['internal'], get_declared_classes(), get_declared_interfaces(),
            get_loaded_extensions(), get_loaded_extensions(true), get_extension_funcs('standard'),
            array_keys(get_defined_constants()), array_keys(ini_get_all(null, false))];
        foreach ($all as &$list) { sort($list); }
        echo md5(json_encode($all)), ' ', count($all[0]), ' ', count($all[6]), \"\\n\";
        foreach (ini_get_all(null, false) as $name => $value) { echo \"$name=$value\\n\"; }
        set_include_path(__DIR__ . '/lib'); echo include 'in.inc'; chdir('/'); echo getcwd();
        echo is_file(__FILE__) ? 1 : 0, file_exists(__DIR__ . '/none') ? 1 : 0;
        echo (new ReflectionFunction('strlen'))->getParameters()[0]->getName(), ' ', strtoupper('abc'), ' ', PHP_VERSION;
        class Own extends ArrayObject { public string $name = 'x'; function __toString(): string { return $this->name; } }
        echo new Own, ' ', json_encode(['a' => 1.5, 'b' => null]), ' ', serialize(new Own([1]));
        try { throw new DomainException('told'); } catch (LogicException $e) { echo get_class($e), $e->getMessage(); }",
    );
    fs::create_dir(daemon.dir.join("lib")).expect("directory");
    daemon.write("lib/in.inc", "<?php return 'included ';");
    for round in 0..3 {
        let (a, b) = (
            daemon.get("a", "all.php").body(),
            daemon.get("b", "all.php").body(),
        );
        assert_contains(&a, &format!("included /10string ABC {PHP}"));
        assert_eq!(a, b, "round {round}");
    }
}
