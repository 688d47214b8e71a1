use super::*;
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
