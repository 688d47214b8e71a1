use super::*;
use forkyard_core::applications::{Options, RestartMethod};
use std::num::NonZeroU32;
use std::time::Duration;

/// An application pool; `more` starts at line 4, and `keys` of `applications` after another line.
fn routed(more: &str, keys: &str) -> String {
    format!(
        "[pool.www]\nlisten = \"/run/a.sock\"\nrouting = \"application\"\n{more}\n[pool.www.applications]\n{keys}\n"
    )
}

const DIRECTORIES: &str = "directories = [\"/srv/www\"]";

#[test]
fn little_has_to_be_written() {
    let pool = valid(&routed("", DIRECTORIES)).pools[0].as_ref().clone();
    let applications = pool.applications.expect("it has applications");
    assert_eq!(applications.directories, [PathBuf::from("/srv/www")]);
    assert_eq!(applications.max.get(), 6);
    assert_eq!(applications.options, Options::default());
    assert!(applications.user_switching);
    assert_eq!(applications.min_uid, 1000);
    assert_eq!(pool.pm, ProcessManager::Ordered { max_children: 7 });
    assert_eq!(pool.account.user, None);
    assert_eq!(pool.replacement.stop_timeout, Duration::from_secs(60));
    let Application::Php(php) = pool.application else {
        panic!("what holds for PHP applications");
    };
    assert_eq!(php.version, crate::php::newest());
}

#[test]
fn keys_become_options_and_zero_is_no_limit() {
    let keys = "directories = [\"/srv/www\"]\nmax = 9\nmax_per_app = 3\nmin_instances = 2\nmax_requests = 5\n\
                max_idle_time = 0\nmax_request_queue_size = 0\nmax_request_queue_time = 7\nmemory_limit = \"64M\"\n\
                rolling_restarts = true\nstat_throttle_rate = 0\nrestart_dir = \"var/restart\"\n\
                default_user = \"www-data\"\nuser_switching = false\nuse_global_queue = false\ndrain_timeout = \"0\"\nwork_timeout = \"5s\"";
    let pool = valid(&routed("", keys)).pools[0].as_ref().clone();
    let applications = pool.applications.expect("it has applications");
    let wanted = Options {
        max_per_app: NonZeroU32::new(3),
        min_instances: 2,
        max_requests: NonZeroU32::new(5),
        max_idle_time: None,
        max_request_queue_size: None,
        memory_limit: Some(64 << 20),
        restart_method: RestartMethod::Rolling,
        use_global_queue: false,
        work_timeout: Duration::from_secs(5),
        ..Options::default()
    };
    assert_eq!(applications.options, wanted);
    assert_eq!(applications.max_request_queue_time, Some(Duration::from_secs(7)));
    assert_eq!(applications.stat_throttle_rate, Duration::ZERO);
    assert_eq!(applications.restart_dir, Some(PathBuf::from("var/restart")));
    assert_eq!(applications.default_user.as_deref(), Some("www-data"));
    assert!(!applications.user_switching);
}

#[test]
fn without_root_no_user_is_switched_to_whatever_is_written() {
    let users = |switching: &str| {
        let text = routed("", &format!("{DIRECTORIES}\n{switching}"));
        let config = parse(&text, Path::new("/etc/forkyard.toml"), &USER).expect("valid");
        config.config.pools[0].applications.clone()
    };
    let never = users("user_switching = false");
    assert!(
        never
            .as_ref()
            .is_some_and(|applications| !applications.user_switching)
    );
    assert_eq!(users("user_switching = true"), never);
    assert_eq!(users(""), never);
}

#[test]
fn groups_are_tables_of_roots() {
    let keys = "directories = [\"/srv/www\"]\n[pool.www.applications.groups]\nimages = [\"/srv/www/a\", \"/srv/www/b\"]\n\
                'v1.2' = [\"/srv/www/c\"]";
    let pool = valid(&routed("", keys)).pools[0].as_ref().clone();
    let groups = pool.applications.expect("it has applications").groups;
    let roots = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
    assert_eq!(groups["images"], roots(&["/srv/www/a", "/srv/www/b"]));
    assert_eq!(groups["v1.2"], roots(&["/srv/www/c"]));
    for (group, expected) in [
        (
            "'a b' = [\"/srv/www/a\"]",
            "\"a b\" can't be the name of a group; use letters, digits, -, _ and .",
        ),
        (
            "g = []",
            "it is empty; give the root of at least one application, or leave it out",
        ),
        (
            "g = [\"/srv/www/../a\"]",
            "\"/srv/www/../a\" is no application's root; give an absolute path without ..",
        ),
        (
            "g = [\"/srv/a\", \"/srv/a\"]",
            "\"/srv/a\" is there twice; give each application once",
        ),
        (
            "f = [\"/srv/a\"]\ng = [\"/srv/a\"]",
            "\"/srv/a\" is in another group; give each application in one group",
        ),
    ] {
        let line = 7 + group.matches('\n').count();
        let keys = format!("directories = [\"/srv/www\"]\n[pool.www.applications.groups]\n{group}");
        let text = routed("", &keys);
        let expected = format!(
            "{}:1: error: [pool www] applications.groups: {expected}",
            line + 1
        );
        one(&text, &ROOT, &expected);
    }
}

#[test]
fn rules_of_applications() {
    cases(
        in_halves(routed),
        &ROOT,
        r#"
        --
        max = 2
        ! 1:7: error: [pool www] applications.directories: missing; write directories = ["/srv"], below which the applications are
        --
        directories = []
        ! 6:1: error: [pool www] applications.directories: it is empty; give at least one directory
        --
        directories = ["/nowhere"]
        ! 6:1: error: [pool www] applications.directories: "/nowhere" is not an existing directory; make it, or give another path
        --
        directories = ["/srv/www"]
        max = 0
        ! 7:1: error: [pool www] applications.max: 0 is out of range; give a whole number from 1 to 100000
        --
        directories = ["/srv/www"]
        max = 2
        min_instances = 3
        ! 8:1: error: [pool www] applications.min_instances: 3 is more than an application may have, which is 2; give at most 2
        --
        directories = ["/srv/www"]
        restart_dir = "../x"
        ! 7:1: error: [pool www] applications.restart_dir: "../x" does not stay in the application; give a path without .., relative to the application's root
        --
        directories = ["/srv/www"]
        router_user = "root"
        ! 7:1: error: [pool www] applications.router_user: "root" is root; name another user
        --
        directories = ["/srv/www"]
        user_switching = false
        ! 7:1: error: [pool www] applications.user_switching: it is false, and the user whom all applications run as is missing; set applications.default_user
        --
        directories = ["/srv/www"]
        root_parameter = "A B"
        ! 7:1: error: [pool www] applications.root_parameter: "A B" can't be the name of a parameter; use letters, digits and _
        pm = "static"
        --
        directories = ["/srv/www"]
        ! 4:1: error: [pool www] pm: it is not for routing = "application"; leave it out: the keys of [pool.www.applications] set the number of instances
        chroot = "/srv/www"
        --
        directories = ["/srv/www"]
        ! 4:1: error: [pool www] chroot: it is not for routing = "application"; leave it out
        stop_timeout = "5s"
        --
        directories = ["/srv/www"]
        ! 4:1: error: [pool www] stop_timeout: it is not for routing = "application"; write it into [pool.www.applications]
    "#,
    );
    one(
        &pool("applications.max = 3"),
        &ROOT,
        "7:14: error: [pool www] routing: missing; write routing = \"application\", which these keys belong to; or leave them out",
    );
    one(
        &routed("application.runtime = \"wsgi\"", DIRECTORIES),
        &ROOT,
        "4:13: error: [pool www] application.runtime: with routing = \"application\" each application states its runtime itself; leave it out, or write \"php\" for what holds for PHP applications",
    );
    one(
        &routed("", "directories = [\"/srv/www\"]\nmaximum = 3"),
        &ROOT,
        "7:1: error: [pool www] applications.maximum: unknown key; did you mean applications.max?",
    );
}

/// Root on a machine without the packages' user.
fn without_own_user() -> Machine {
    Machine {
        root: true,
        files: vec![("/no-forkyard", "")],
    }
}

#[test]
fn where_applications_run_as_their_owners_router_and_inspector_have_a_user() {
    let missing = "1:7: error: [pool www] applications.router_user: applications run as their owners, and there is no user forkyard \
                   for router and inspector; make it: adduser --system --group --no-create-home forkyard; or name one that \
                   nothing else runs as";
    one(&routed("", DIRECTORIES), &without_own_user(), missing);
    let named = format!("{DIRECTORIES}\nrouter_user = \"www-data\"");
    let as_one = format!("{DIRECTORIES}\nuser_switching = false\ndefault_user = \"www-data\"");
    for (text, world) in [
        (routed("", DIRECTORIES), ROOT),
        (routed("user = \"www-data\"", DIRECTORIES), without_own_user()),
        (routed("", &named), without_own_user()),
        (routed("", &as_one), without_own_user()),
        (routed("", DIRECTORIES), USER),
    ] {
        assert_eq!(found(&text, &world), [""; 0], "in\n{text}");
    }
}

#[test]
fn nothing_runs_as_the_user_of_router_and_inspector() {
    let plain = pool("").replace("www-data", "forkyard");
    let problem = "router and inspector of application pools run as this user; another process of this user could stop them";
    one(
        &plain,
        &ROOT,
        &format!("3:1: error: [pool www] user: {problem}; name another user"),
    );
    one(
        &plain.replace("user = \"forkyard\"", "user = \"990\"\ngroup = \"www-data\""),
        &ROOT,
        &format!("3:1: error: [pool www] user: {problem}; name another user"),
    );
    one(
        &routed("user = \"forkyard\"", DIRECTORIES),
        &ROOT,
        &format!("4:1: error: [pool www] user: {problem}; leave it out: they do without it"),
    );
    let keys = format!("{DIRECTORIES}\ndefault_user = \"forkyard\"");
    one(
        &routed("", &keys),
        &ROOT,
        &format!("7:1: error: [pool www] applications.default_user: {problem}; name another user"),
    );
    let other = pool("")
        .replace("pool.www", "pool.other")
        .replace("a.sock", "b.sock");
    for (more, keys, key) in [
        ("user = \"www-data\"", DIRECTORIES.to_owned(), "user"),
        (
            "",
            format!("{DIRECTORIES}\nrouter_user = \"33\""),
            "applications.router_user",
        ),
    ] {
        let routed = routed(more, &keys);
        let line = routed.lines().count() + 3;
        one(
            &format!("{routed}{other}"),
            &ROOT,
            &format!(
                "{line}:1: error: [pool other] user: pool \"www\" has it as {key}: the pool's router runs as this user, and a process of this pool could stop it; name another user, or leave {key} out there"
            ),
        );
    }
}

#[test]
fn where_all_are_one_user_it_is_not_by_chance_that_of_the_router() {
    let one_user = |user: &str| format!("{DIRECTORIES}\nuser_switching = false\ndefault_user = \"{user}\"");
    let expected = "8:1: error: [pool www] applications.default_user: router and inspector run as this user; an application of the same user could stop them; name another user, or make one for them: adduser --system --group --no-create-home forkyard";
    one(&routed("", &one_user("nobody")), &without_own_user(), expected);
    assert_eq!(found(&routed("", &one_user("nobody")), &ROOT), [""; 0]);
    let said = routed("user = \"www-data\"", &one_user("www-data"));
    assert_eq!(found(&said, &ROOT), [""; 0]);
}

#[test]
fn a_tenth_of_the_places_is_reserved_or_what_is_said() {
    let reserve = |more: &str| {
        let pool = valid(&routed("", &format!("{DIRECTORIES}\n{more}"))).pools[0]
            .as_ref()
            .clone();
        pool.applications.expect("it has applications").reserve
    };
    assert_eq!(reserve(""), 1);
    for (max, wanted) in [(1, 0), (2, 0), (3, 1), (10, 1), (11, 2), (100, 10)] {
        assert_eq!(reserve(&format!("max = {max}")), wanted, "of {max}");
    }
    assert_eq!((reserve("reserve = 0"), reserve("max = 2\nreserve = 1")), (0, 1));
    one(
        &routed("", &format!("{DIRECTORIES}\nmax = 3\nreserve = 3")),
        &ROOT,
        "8:1: error: [pool www] applications.reserve: 3 is all that there are: applications.max is 3; give at most 2",
    );
}
