//! Pools that share a preloader.

use super::*;
use crate::sharing::{common, label};

/// Two pools that share, `b` with more lines of its own and of its application.
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
    let shared = "preloader = \"shared\"\n";
    let application = if application.contains("preloader =") {
        application.to_owned()
    } else {
        format!("{shared}{application}")
    };
    one("a", "", shared) + &one("b", own, &application)
}

/// What is wrong, after the place and the key.
fn problem(text: &str) -> String {
    let found = found(text, &ROOT);
    let [only] = found.as_slice() else {
        panic!("{found:?} in\n{text}");
    };
    let start = only.find("[pool b] application.preloader: ").expect("the key");
    only[start..].to_owned()
}

#[test]
fn the_word_says_whose_preloader_it_is() {
    for (word, expected) in [
        ("own", Preloading::Own),
        ("shared", Preloading::Shared(String::new())),
        ("shared:shop-1", Preloading::Shared("shop-1".to_owned())),
    ] {
        assert_eq!(Preloading::from_word(word), Some(expected.clone()));
        assert_eq!(expected.word(), word);
    }
    for word in ["", "other", "shared:", "shared: x", "shared:a/b", "Shared"] {
        assert_eq!(Preloading::from_word(word), None, "{word}");
    }
    let text = pool("").replace("version", "preloader = \"common\"\nversion");
    one(
        &text,
        &ROOT,
        "10:1: error: [pool www] application.preloader: \"common\" is not a kind of preloader; write \"own\", \"shared\", or \"shared:NAME\" with letters, digits, _, - and . in NAME",
    );
}

#[test]
fn pools_that_differ_in_what_is_their_own_share() {
    let own = "max_requests = 5\nchdir = \"/srv/www\"\nenv = { X = \"1\" }\nstatus_path = \"/s\"\n\
               request_terminate_timeout = \"5s\"\n";
    let application = "limit_extensions = []\nrequest_settings = \"none\"\npreloader_idle_timeout = \"1s\"\n\
                       php_admin_value = { memory_limit = \"1M\" }\nphp_value = { precision = 3 }\n";
    let config = valid(&two(own, application));
    let [a, b] = config.pools.as_slice() else {
        panic!("two pools");
    };
    assert_eq!(common(a), common(b));
    assert_eq!(label([a, b]), "shared a+b");
    assert_eq!(label([&valid(&pool("")).pools[0]]), "www");
}

#[test]
fn pools_that_differ_in_what_is_the_process_s_are_refused() {
    let remedy = "write the same in both, or another group, such as preloader = \"shared:NAME\"";
    for (own, application, key) in [
        ("group = \"www-data\"\n", "", "group"),
        ("chroot = \"/srv/www\"\n", "", "chroot"),
        ("clear_env = false\n", "", "clear_env"),
        ("rlimit_files = 99\n", "", "rlimit_files"),
        ("process.priority = 3\n", "", "process.priority"),
        ("no_new_privs = true\n", "", "no_new_privs"),
        ("reload = \"always\"\n", "", "reload"),
        ("env = { PHPRC = \"/x\" }\n", "", "env.PHPRC"),
        ("confine.private_tmp = true\n", "", "confine.private_tmp"),
        ("", "php_ini = \"/etc/php/8.2/fpm\"\n", "php_ini"),
        ("", "warm_up = 3\n", "warm_up"),
    ] {
        let expected = format!(
            "[pool b] application.preloader: pool b can't share pool a's preloader: {key} differs; {remedy}"
        );
        assert_eq!(problem(&two(own, application)), expected);
    }
    // In groups of their own they are no concern of each other's.
    valid(&two("reload = \"always\"\n", "preloader = \"shared:other\"\n"));
    valid(&two("reload = \"always\"\n", "preloader = \"own\"\n"));
}

#[test]
fn pools_that_differ_in_the_same_are_told_of_once_and_compared_with_most() {
    let one = |name: &str, user: &str| {
        format!(
            "[pool.{name}]\nlisten = \"/run/{name}.sock\"\npm = \"static\"\nmax_children = 2\nuser = \"{user}\"\n\
             [pool.{name}.application]\nruntime = \"php\"\nversion = \"8.2\"\npreloader = \"shared\"\n"
        )
    };
    let remedy = "only pools of one user share: write preloader = \"shared:NAME\" with another NAME for each user, or \"own\"";
    // The odd one is the first.
    let text = one("odd", "1234\"\ngroup = \"www-data") + &one("a", "www-data") + &one("b", "www-data");
    assert_eq!(
        found(&text, &ROOT),
        [format!(
            "10:1: error: [pool odd] application.preloader: pool odd can't share pool a's preloader: user differs; {remedy}"
        )]
    );
    let many: String = (0..300)
        .map(|uid| {
            one(
                &format!("p{uid}"),
                &format!("{}\"\ngroup = \"www-data", uid + 1000),
            )
        })
        .collect();
    assert_eq!(
        found(&many, &ROOT),
        [format!(
            "20:1: error: [pool p1] application.preloader: pools p1, p2, p3 and 296 others can't share pool p0's \
             preloader: user differs; {remedy}"
        )]
    );
}

#[test]
fn settings_that_php_has_only_one_of_have_to_be_the_same() {
    let text = |value: &str| {
        two("", &format!("php_admin_value = {{ {value} }}\n")).replacen(
            "preloader = \"shared\"\n",
            "preloader = \"shared\"\nphp_value = { opcache.memory_consumption = 64 }\n",
            1,
        )
    };
    let remedy = "PHP has one value for all: write the same in both, or another group, such as preloader = \"shared:NAME\"";
    for (value, problem_of_it) in [
        (
            "opcache.memory_consumption = 32",
            "opcache.memory_consumption is \"64\" there and \"32\" here",
        ),
        (
            "memory_limit = 1",
            "opcache.memory_consumption is \"64\" there and not set here",
        ),
        (
            "opcache.memory_consumption = 64, disable_functions = \"exec\"",
            "disable_functions is not set there and \"exec\" here",
        ),
    ] {
        let expected = format!(
            "[pool b] application.preloader: pool b can't share pool a's preloader: {problem_of_it}; {remedy}"
        );
        assert_eq!(problem(&text(value)), expected);
    }
    let config = valid(&text("opcache.memory_consumption = 64"));
    assert_eq!(common(&config.pools[0]), common(&config.pools[1]));
}

#[test]
fn a_control_group_is_not_shared() {
    let own = "[pool.b.cgroup]\nparent = \"/srv/www\"\npids_max = 9\n";
    let expected = "[pool b] application.preloader: pool b can't share a preloader: it has a cgroup of its own; write preloader = \"own\", or leave out cgroup";
    assert_eq!(problem(&two(own, "")), expected);
}
