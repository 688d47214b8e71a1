use std::time::Duration;

use super::*;

/// A dynamic pool; `more` starts at line 6.
fn dynamic(more: &str) -> String {
    format!(
        "[pool.www]\nlisten = \"/run/a.sock\"\nuser = \"www-data\"\npm = \"dynamic\"\nmax_children = 5\n{more}\n\
         [pool.www.application]\nruntime = \"php\"\nversion = \"8.2\"\n"
    )
}

#[test]
fn rules_of_the_process_manager() {
    cases(
        dynamic,
        &ROOT,
        r#"
        max_spare_servers = 3
        ! 1:7: error: [pool www] min_spare_servers: missing; write min_spare_servers = 1, the fewest idle workers
        min_spare_servers = 1
        ! 1:7: error: [pool www] max_spare_servers: missing; write max_spare_servers = 3, the most idle workers
        min_spare_servers = 0
        max_spare_servers = 3
        ! 6:1: error: [pool www] min_spare_servers: 0 is out of range; give a whole number from 1 to 1000000
        min_spare_servers = 1
        max_spare_servers = 0
        ! 7:1: error: [pool www] max_spare_servers: 0 is out of range; give a whole number from 1 to 1000000
        min_spare_servers = 1
        max_spare_servers = 6
        start_servers = 1
        ! 7:1: error: [pool www] max_spare_servers: 6 is more than max_children, which is 5; give at most 5
        min_spare_servers = 3
        max_spare_servers = 2
        ! 7:1: error: [pool www] max_spare_servers: 2 is less than min_spare_servers, which is 3; give at least 3
        min_spare_servers = 1
        max_spare_servers = 2
        start_servers = 3
        ! 8:1: error: [pool www] start_servers: 3 is not between min_spare_servers and max_spare_servers; give a whole number from 1 to 2
        min_spare_servers = 1
        max_spare_servers = 2
        start_servers = -3
        ! 8:1: error: [pool www] start_servers: -3 is out of range; give a whole number from 0 to 1000000
        min_spare_servers = 1
        max_spare_servers = 2
        start_servers = 1
        max_spawn_rate = 0
        ! 9:1: error: [pool www] max_spawn_rate: 0 is out of range; give a whole number from 1 to 1000000
        min_spare_servers = 1
        max_spare_servers = 2
        start_servers = 1
        process_idle_timeout = 0
        ! 9:1: error: [pool www] process_idle_timeout: 0 is too short; give a duration above zero, for example "10s"
    "#,
    );
    for (lines, expected) in [
        ("min_spare_servers = 1\nmax_spare_servers = 4", 2),
        (
            "min_spare_servers = 2\nmax_spare_servers = 5\nstart_servers = 0",
            3,
        ),
    ] {
        let text = dynamic(lines);
        assert_eq!(found(&text, &ROOT), Vec::<String>::new());
        let ProcessManager::Dynamic { start_servers, .. } = valid(&text).pools[0].pm else {
            panic!("{text}");
        };
        assert_eq!(start_servers, expected);
    }
    let with = |from: &str, to: &str| pool("").replace(from, to);
    for (from, to, expected) in [
        (
            "pm = \"static\"",
            "",
            "1:7: error: [pool www] pm: missing; write pm = \"dynamic\", \"static\" or \"ondemand\"",
        ),
        (
            "\"static\"",
            "\"statical\"",
            "4:1: error: [pool www] pm: \"statical\" is not a process manager; write \"static\", \"dynamic\" or \"ondemand\"",
        ),
        (
            "max_children = 2",
            "",
            "1:7: error: [pool www] max_children: missing; write max_children = \"auto\", or a number of workers",
        ),
        (
            "max_children = 2",
            "max_children = 0",
            "5:1: error: [pool www] max_children: 0 is out of range; give a whole number from 1 to 1000000",
        ),
        (
            "max_children = 2",
            "max_children = 2.5",
            "5:1: error: [pool www] max_children: 2.5 is not a number of workers; write digits without quotes, for example 10, or \"auto\"",
        ),
    ] {
        one(&with(from, to), &ROOT, expected);
    }
    assert_eq!(
        found(&with("pm = \"static\"", "pm.max_children = 3"), &ROOT),
        [
            "1:7: error: [pool www] pm: missing; write pm = \"dynamic\", \"static\" or \"ondemand\"",
            "4:4: error: [pool www] pm.max_children: unknown key; php-fpm's pm.max_children is written max_children",
        ]
    );
    let ondemand = valid(&with("\"static\"", "\"OnDemand\"")).pools[0].pm;
    let expected = ProcessManager::Ondemand {
        max_children: 2,
        process_idle_timeout: Duration::from_secs(10),
    };
    assert_eq!(ondemand, expected);
}

#[test]
fn what_the_master_has_open_grows_with_the_pools_and_what_they_always_have() {
    let of = |lines: &str| crate::descriptors(&valid(&pool("").replace("\"static\"", lines)));
    let ondemand = of("\"ondemand\"");
    assert_eq!((ondemand.least, ondemand.used), (64 + 1, 64 + 1 + 8 + 1));
    assert_eq!(ondemand.left, 4 + 1 + 7 + 1);
    let fixed = of("\"static\"");
    assert_eq!(fixed.least, fixed.used, "its workers are always there");
    assert!(fixed.least > ondemand.used);
    let logged = of("\"ondemand\"\naccess.log = \"/var/log/a\"\ncatch_workers_output = true");
    assert_eq!((logged.least, logged.used), (64 + 2, 64 + 2 + 8 + 2 + 3));
    assert_eq!(logged.left, 4 + 1 + 7 + 2 + 3, "the log itself is opened anew");
}
