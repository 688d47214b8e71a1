use super::*;
use crate::settings::{self, Section};
use crate::sharing::{common, label, wants_zygote};

fn two(own: &str, application: &str) -> String {
    let one = |name: &str, own: &str, application: &str| {
        format!(
            "[pool.{name}]\nlisten = \"/run/{name}.sock\"\npm = \"static\"\nmax_children = 2\n{}{own}\n\
             [pool.{name}.application]\nruntime = \"php\"\nversion = \"8.2\"\n{application}",
            if own.contains("user") {
                ""
            } else {
                "user = \"www-data\"\n"
            }
        )
    };
    let zygote = "preloader = \"zygote\"\n";
    let application = if application.contains("preloader =") {
        application.to_owned()
    } else {
        format!("{zygote}{application}")
    };
    one("a", "", zygote) + &one("b", own, &application)
}

fn problem(text: &str) -> String {
    let found = found(text, &ROOT);
    let [only] = found.as_slice() else {
        panic!("{found:?} in\n{text}");
    };
    let start = only.find("[pool b] application.preloader: ").expect("the key");
    only[start..].to_owned()
}

#[test]
fn the_word_says_whose_preloader_it_is_and_the_old_one_what_to_write_now() {
    for (word, expected) in [("own", Preloading::Own), ("zygote", Preloading::Zygote)] {
        assert_eq!(Preloading::from_word(word), Some(expected));
        assert_eq!(expected.as_str(), word);
    }
    for word in ["", "other", "shared", "shared:shop-1", "Own"] {
        assert_eq!(Preloading::from_word(word), None, "{word}");
        let text = pool("").replace("version", &format!("preloader = \"{word}\"\nversion"));
        one(
            &text,
            &ROOT,
            &format!(
                "10:1: error: [pool www] application.preloader: \"{word}\" is not a kind of preloader; write \"own\", or \
                 \"zygote\", which has taken the place of \"shared\""
            ),
        );
    }
}

#[test]
fn pools_of_users_have_workers_of_a_zygote_where_they_may() {
    let zygote = |text: &str, world: &Machine| {
        let loaded = parsed(text, world).unwrap_or_else(|errors| panic!("{errors}"));
        wants_zygote(&loaded.config.pools[0])
    };
    let pool = |own: &str, application: &str| {
        format!(
            "[pool.a]\nlisten = \"/run/a.sock\"\npm = \"ondemand\"\nmax_children = 2\n{own}\n\
             [pool.a.application]\nruntime = \"php\"\nversion = \"8.2\"\n{application}"
        )
    };
    let user = "user = \"www-data\"\n";
    for pm in [
        "pm = \"ondemand\"",
        "pm = \"static\"",
        "pm = \"dynamic\"\nmin_spare_servers = 1\nmax_spare_servers = 1",
    ] {
        for application in [
            "",
            "warm_up = 5\n",
            "php_admin_value = { opcache.preload = \"\" }\n",
        ] {
            let text = pool(user, application).replace("pm = \"ondemand\"", pm);
            assert!(zygote(&text, &ROOT), "{text}");
            assert!(!zygote(&text, &USER), "the daemon has one user: {text}");
        }
    }
    for (what, text) in [
        ("it names another", pool(user, "preloader = \"own\"\n")),
        (
            "it is root's",
            pool("user = \"root\"\n", "").replacen("[pool", "[global]\nallow_root = true\n[pool", 1),
        ),
        (
            "a script runs at PHP's start",
            pool(
                user,
                "php_admin_value = { opcache.preload = \"/srv/www/p.php\" }\n",
            ),
        ),
        (
            "it has a /tmp of its own",
            pool(&format!("{user}confine.private_tmp = true\n"), ""),
        ),
        (
            "the dynamic linker looks at it",
            pool(&format!("{user}env = {{ LD_PRELOAD = \"/srv/www/x.so\" }}\n"), ""),
        ),
    ] {
        assert!(!zygote(&text, &ROOT), "{what}");
    }
    let explicit = pool("", "preloader = \"zygote\"\n");
    assert!(zygote(&explicit, &USER), "who asks for it has it");
}

#[test]
fn so_have_the_applications_of_an_application_pool() {
    let text = "[pool.a]\nlisten = \"/run/a.sock\"\nrouting = \"application\"\n\
                [pool.a.applications]\ndirectories = [\"/srv/www\"]\nrouter_user = \"www-data\"\n";
    for (application, expected) in [("", true), ("[pool.a.application]\npreloader = \"own\"\n", false)] {
        let config = valid(&format!("{text}{application}"));
        assert_eq!(wants_zygote(&config.pools[0]), expected);
    }
}

#[test]
fn pools_of_any_user_have_one_zygote_as_long_as_php_starts_the_same() {
    let resolved = |own: &str, application: &str| {
        let config = valid(&two(own, application));
        let [a, b] = config.pools.as_slice() else {
            panic!("two pools");
        };
        assert_eq!(label(a), "zygote");
        (common(a), common(b))
    };
    let own = "user = \"1234\"\ngroup = \"www-data\"\nchroot = \"/srv/www\"\nrlimit_files = 99\n\
               no_new_privs = true\ncpu_weight = 3\nmemory_max = \"9M\"\nreload = \"always\"\n\
               max_requests = 5\nenv = { X = \"1\" }\nstatus_path = \"/s\"\nrequest_terminate_timeout = \"5s\"\n";
    let late = "limit_extensions = []\nrequest_settings = \"none\"\npreloader_idle_timeout = \"1s\"\nwarm_up = 0\n\
                php_value = { precision = 3 }\nphp_admin_value = { opcache.validate_timestamps = 0, \
                opcache.file_cache = \"/srv/www\", memory_limit = \"1M\", disable_functions = \"exec\" }\n";
    let (a, b) = resolved(own, late);
    assert_eq!(a, b);
    for (own, application) in [
        ("", "php_admin_value = { opcache.memory_consumption = 16 }\n"),
        ("", "php_admin_value = { apc.shm_size = \"64M\" }\n"),
        ("", "php_value = { yac.keys_memory_size = \"1M\" }\n"),
        ("", "php_ini = \"/srv/www\"\n"),
        ("clear_env = false\n", ""),
        ("env = { PHPRC = \"/srv/www\" }\n", ""),
    ] {
        let (a, b) = resolved(own, application);
        assert_ne!(a, b, "it is fixed when PHP starts: {own}{application}");
    }
    let own = valid(&two("", "preloader = \"own\"\n"));
    assert_eq!(label(&own.pools[1]), "b");
}

#[test]
fn what_a_zygote_can_t_do_is_refused() {
    for (own, application, key) in [
        ("confine.private_tmp = true\n", "", "confine.private_tmp"),
        (
            "",
            "php_admin_value = { opcache.preload = \"/srv/www/p.php\" }\n",
            "opcache.preload",
        ),
    ] {
        let problem = problem(&two(own, application));
        assert!(
            problem.starts_with(&format!(
                "[pool b] application.preloader: a pool with {key} can't have workers of a zygote; "
            )),
            "{problem}"
        );
    }
}

#[test]
fn compiled_scripts_are_kept_in_one_place_and_not_below_a_root_directory() {
    let kept = "opcache_cache = \"/var/cache/forkyard\"\n";
    let config = valid(&two("", kept));
    let Application::Php(php) = &config.pools[1].application else {
        panic!("PHP");
    };
    assert_eq!(
        php.opcache_cache.as_deref(),
        Some(Path::new("/var/cache/forkyard"))
    );
    for (own, application, expected) in [
        (
            "",
            "opcache_cache = \"cache\"\n".to_owned(),
            "\"cache\" is not an absolute path; start it with /",
        ),
        (
            "chroot = \"/srv/www\"\n",
            format!("preloader = \"own\"\n{kept}"),
            "a pool with chroot can't keep compiled scripts; leave out one of the two",
        ),
        (
            "",
            format!("{kept}php_admin_value = {{ opcache.file_cache = \"/srv/www\" }}\n"),
            "opcache.file_cache is set as well; leave out one of the two",
        ),
    ] {
        let found = found(&two(own, &application), &ROOT);
        let wanted = format!("[pool b] application.opcache_cache: {expected}");
        assert!(found.iter().any(|line| line.ends_with(&wanted)), "{found:?}");
    }
}

/// Keys that a zygote's start depends on, or that keep a pool from using a zygote. Each line has the key with a value
/// other than in `with`, and other lines that this value needs, after `&`. A pool of PHP can't have `http_listen`.
const START_KEYS: &str = "\
application.runtime = 'rust'
application.version = '8.3'
application.library = '/usr/lib/libphp8.2.so'
application.php_ini = '/srv/www'
application.start_timeout = '7s'
application.preloader = 'own'
application.worker = '/srv/www' & application.worker_mode = 'loop'
application.worker_mode = 'loop' & application.worker = '/srv/www'
application.isolation = 'rewind' & $
application.loop_requests = 3 & $
application.loop_memory = '9M' & $
application.boot_timeout = '7s' & $
application.boot_connections = 'keep' & $
application.warm_up_requests = ['/'] & $
application.warm_up_server = { A = 'b' } & $
application.watch = ['/srv/app/*.php'] & $
application.php_value = { yac.keys_memory_size = '1M' }
application.php_flag = { opcache.enable = false }
application.php_admin_value = { apc.shm_size = '64M' }
application.php_admin_flag = { opcache.enable_cli = true }
env = { PHPRC = '/srv/www' }
clear_env = false
confine.private_tmp = true
http_listen = '/run/h.sock' & application.runtime = 'http' & application.address = '127.0.0.1:3000'";

/// Keys that are applied in the worker. A value without `=` takes a line away.
const WORKER_KEYS: &str = "\
application.limit_extensions = []
application.script_root = '/srv/www'
application.request_settings = 'none'
application.preloader_idle_timeout = '7s'
application.warm_up = 7
application.warm_up_time = '7s'
application.opcache_cache = '/run/cache'
user = 'nobody'
group = 'www-data'
listen = '/run/b.sock'
listen.address = '/run/b.sock'
listen.backlog = 7
listen.acl_users = ['nobody']
listen.acl_groups = ['root']
listen.owner = 'nobody'
listen.group = 'www-data'
listen.mode = '0600'
listen.allowed_clients = ['127.0.0.1'] & listen.address = '127.0.0.1:9000'
process.priority = 7
process.dumpable = true
routing = 'application' & applications.directories = ['/srv/www'] & pm & max_children
pm = 'ondemand'
max_children = 7
max_children_most = 7 & max_children = 'auto'
start_servers = 2 & pm = 'dynamic' & min_spare_servers = 1 & max_spare_servers = 2
min_spare_servers = 2 & pm = 'dynamic' & max_spare_servers = 2
max_spare_servers = 2 & pm = 'dynamic' & min_spare_servers = 1
max_spawn_rate = 7 & pm = 'dynamic' & min_spare_servers = 1 & max_spare_servers = 2
process_idle_timeout = '7s' & pm = 'ondemand'
max_requests = 7
max_requests_jitter = 7 & max_requests = 7
memory_limit = '7M'
reload = 'always'
status_path = '/s'
status_listen = '/run/s.sock'
ping.path = '/p'
ping.response = 'p' & ping.path = '/p'
access.log = '/var/log/a'
access.format = '%s' & access.log = '/var/log/a'
access.suppress_path = ['/p'] & access.log = '/var/log/a'
slowlog = '/var/log/s' & request_slowlog_timeout = '7s'
request_slowlog_timeout = '7s' & slowlog = '/var/log/s'
request_slowlog_trace_depth = 7 & slowlog = '/var/log/s' & request_slowlog_timeout = '7s'
request_terminate_timeout = '7s'
request_terminate_timeout_track_finished = true & request_terminate_timeout = '7s'
stop_timeout = '7s'
client_timeout = '7s'
keepalive_timeout = '7s'
wait_for_cpu = false
max_request_queue_time = 'auto'
lanes = 'wordpress'
lane_reserve = 2 & lanes = 'wordpress'
lane_extra = false & lanes = 'wordpress'
release = '/srv/www'
gradual = [7] & release = '/srv/www'
step_time = '7s' & release = '/srv/www'
release_shared = ['/srv/up'] & release = '/srv/www'
abandoned = 'run'
abandoned_keep = ['/p']
limits.params_bytes = '7K'
limits.params_count = 77
rlimit_files = 77
rlimit_core = 'unlimited'
chroot = '/srv/www'
chdir = '/srv/www'
catch_workers_output = true
decorate_workers_output = false
app_log = '/var/log/a'
friendly_error_pages = true
env_file = '/srv/app/.env'
no_new_privs = true
apparmor_hat = 'www'
confine.read = ['/srv/www'] & confine.write = ['/run']
confine.write = ['/run']
confine.deny_system_calls = true
cpu_weight = 7
push_timeout = '7s'
memory_max = '7M'
cgroup.parent = '/run' & cgroup.pids_max = 7
cgroup.memory_max = '7M' & cgroup.parent = '/run'
cgroup.cpu_percent = 7 & cgroup.parent = '/run'
cgroup.pids_max = 7 & cgroup.parent = '/run'";

/// Returns a file with one pool. Lines of `change` replace its lines with the same keys.
fn with(change: &str) -> String {
    let snapshot = "application.worker_mode = 'snapshot'\napplication.worker = '/srv/www'";
    let change = change.replace(" & ", "\n").replace('$', snapshot);
    let key = |line: &str| line.split(" = ").next().unwrap_or_default().to_owned();
    let is_within = |key: &str, table: &str| key == table || key.starts_with(&format!("{table}."));
    let changed: Vec<String> = change.lines().map(key).collect();
    let has_runtime = |changed: &String| changed == "application.runtime";
    let lines = "listen.address = '/run/a.sock'\nuser = 'www-data'\npm = 'static'\nmax_children = 2\n\
                 application.runtime = 'php'\napplication.version = '8.2'\napplication.preloader = 'zygote'";
    let kept = lines.lines().filter(|line| {
        let is_of_php = line.starts_with("application.") && changed.iter().any(has_runtime);
        !is_of_php && !changed.iter().any(|changed| is_within(&key(line), changed))
    });
    let added = change.lines().filter(|line| line.contains('='));
    let lines: Vec<&str> = kept.chain(added).collect();
    format!("[pool.a]\n{}\n", lines.join("\n"))
}

#[test]
fn of_each_key_it_is_known_whether_a_zygote_starts_with_it() {
    let key_of = |line: &'static str| line.split(" = ").next().unwrap_or_default();
    let listed: Vec<&str> = START_KEYS
        .lines()
        .chain(WORKER_KEYS.lines())
        .map(key_of)
        .collect();
    for setting in settings::all() {
        let key = match setting.section {
            Section::Pool => setting.key.to_owned(),
            Section::Php => format!("application.{}", setting.key),
            _ => continue,
        };
        let count = listed.iter().filter(|listed| **listed == key).count();
        assert_eq!(count, 1, "list {key} in START_KEYS or in WORKER_KEYS, once");
    }
    // `push_timeout` has an effect only with jobs.
    let jobs = "[jobs.queue.q]\npool = 'a'\nscript = '/srv/jobs.php'\n";
    let pool = |change: &str, key: &str| {
        let text = with(change) + if key == "push_timeout" { jobs } else { "" };
        let machine = Machine {
            root: true,
            files: vec![("/memory", "1073741824")],
        };
        let loaded = parsed(&text, &machine).map_err(|errors| errors.to_string())?;
        Ok::<_, String>((*loaded.config.pools[0]).clone())
    };
    let plain = pool("", "").expect("a valid pool");
    assert!(wants_zygote(&plain));
    for change in START_KEYS.lines() {
        let key = key_of(change);
        match pool(change, key) {
            Ok(changed) => assert!(
                !wants_zygote(&changed) || common(&changed) != common(&plain),
                "{key} makes no difference to a zygote"
            ),
            Err(errors) => assert!(errors.contains("application.preloader: "), "{key}: {errors}"),
        }
    }
    let mut wrong = Vec::new();
    for change in WORKER_KEYS.lines() {
        let key = key_of(change);
        let plain = pool("", key).expect("a valid pool");
        wrong.extend(match pool(change, key) {
            Err(errors) => Some(errors),
            Ok(changed) if changed == plain => Some(format!("{key} has no effect")),
            Ok(changed) if !wants_zygote(&changed) => Some(format!("{key} prevents a zygote")),
            Ok(changed) if common(&changed) != common(&plain) => Some(format!("{key} needs another zygote")),
            Ok(_) => None,
        });
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
