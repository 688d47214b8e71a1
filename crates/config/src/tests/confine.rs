use super::*;
use crate::application::RequestSettings;
use crate::model::{Cgroup, Confine, Paths};

fn application(more: &str) -> String {
    format!("{}{more}\n", pool("").replace("\n\n\n", "\n\n"))
}

fn confine_of(lines: &str) -> Confine {
    valid(&pool(lines)).pools[0].confine.clone()
}

#[test]
fn what_is_wrong_with_them() {
    cases(
        pool,
        &ROOT,
        r#"
        confine.read = ["srv"]
        confine.write = ["/run"]
        ! 7:9: error: [pool www] confine.read: "srv" is not an absolute path; start it with /
        confine.write = ["/nowhere"]
        ! 7:9: error: [pool www] confine.write: "/nowhere" does not exist; make it, or leave it out
        confine.read = ["/run"]
        ! 7:9: error: [pool www] confine.read: there is nothing that may be written to; name at least one directory in confine.write: PHP keeps uploads, sessions and OPcache's lock somewhere
        cgroup.pids_max = 5
        ! 7:8: error: [pool www] cgroup.parent: missing; write parent = "/sys/fs/cgroup/forkyard", or a group that is delegated to forkyard
        cgroup = { parent = "/run", memory_max = "1M" }
        ! 7:29: error: [pool www] cgroup.memory_max: 1048576 bytes are too few for a single worker; give at least "4M"
        cgroup = { parent = "/run", cpu_percent = 0 }
        ! 7:29: error: [pool www] cgroup.cpu_percent: 0 is out of range; give a whole number from 1 to 100000
        apparmor_hat = "a/b"
        ! 7:1: error: [pool www] apparmor_hat: "a/b" can't be the name of a hat; write the hat's name alone, without its profile
    "#,
    );
    one(
        &application("request_settings = \"some\""),
        &ROOT,
        "10:1: error: [pool www] application.request_settings: \"some\" is not a choice of settings; write \"harmless\", \"all\", \"none\", or names as [\"memory_limit\"]",
    );
}

#[test]
fn what_they_mean() {
    assert_eq!(confine_of(""), Confine::default());
    let lines = "confine = { read = [\"/srv/www\"], write = [\"/run\"], private_tmp = true }\n\
                 cgroup = { parent = \"/run\", memory_max = \"64M\", cpu_percent = 50 }\n";
    let wanted = Confine {
        paths: Some(Paths {
            read: vec!["/srv/www".into()],
            write: vec!["/run".into()],
        }),
        private_tmp: true,
        cgroup: Some(Cgroup {
            parent: "/run".into(),
            memory_max: Some(64 << 20),
            cpu_percent: Some(50),
            pids_max: None,
            cpu_weight: None,
        }),
        ..Confine::default()
    };
    assert_eq!(confine_of(lines), wanted);
}

#[test]
fn request_settings_are_a_word_or_names() {
    let rule = |text: &str| match &valid(&application(text)).pools[0].application {
        Application::Php(php) => php.request_settings.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(rule(""), RequestSettings::Harmless);
    assert_eq!(rule("request_settings = \"all\""), RequestSettings::All);
    assert_eq!(rule("request_settings = \"none\""), RequestSettings::None);
    let list = RequestSettings::Only(vec!["memory_limit".into()]);
    assert_eq!(rule("request_settings = [\"memory_limit\"]"), list);
}

#[test]
fn a_list_of_users_takes_the_owner_s_place() {
    let text = pool("");
    let listen = text
        .lines()
        .find(|line| line.starts_with("listen"))
        .unwrap_or_default();
    let with = |line: &str| text.replace(listen, line);
    cases(
        with,
        &ROOT,
        r#"
        listen = { address = "/run/a", acl_users = ["gone"] }
        ! 2:32: error: [pool www] listen.acl_users: there is no user "gone"; name an existing user, or give a numeric id
        listen = { address = "/run/a", acl_groups = ["33"], owner = "www-data" }
        ! 2:53: warning: [pool www] listen.owner: it has no effect on a socket with acl_users or acl_groups; a list of users or groups takes the place of owner and group
        listen = { address = "9000", acl_users = ["33"] }
        ! 2:30: warning: [pool www] listen.acl_users: it has no effect on a TCP socket; use allowed_clients
    "#,
    );
}

#[test]
fn shares_are_the_pool_s_own_or_its_group_s() {
    let of = |lines: &str| valid(&pool(lines)).pools[0].as_ref().clone();
    let plain = of("cpu_weight = 50\nmemory_max = \"64M\"\n");
    let wanted = Shares {
        cpu_weight: Some(50),
        memory_max: Some(64 << 20),
    };
    assert_eq!((plain.load.shares, plain.confine.cgroup), (wanted, None));
    let group = of("cpu_weight = 50\nmemory_max = \"64M\"\ncgroup = { parent = \"/run\" }\n");
    let cgroup = group.confine.cgroup.expect("a group");
    assert_eq!(
        (group.load.shares, cgroup.cpu_weight, cgroup.memory_max),
        (Shares::default(), Some(50), Some(64 << 20))
    );
    one(
        &pool("cpu_weight = 0"),
        &ROOT,
        "7:1: error: [pool www] cpu_weight: 0 is out of range; give a whole number from 1 to 10000",
    );
    for (weight, nice) in [(100, 0), (50, 3), (1, 19), (10_000, -20), (125, -1)] {
        let shares = Shares {
            cpu_weight: Some(weight),
            memory_max: None,
        };
        assert_eq!(shares.nice(), Some(nice), "{weight}");
    }
}
