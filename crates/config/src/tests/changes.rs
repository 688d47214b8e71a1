use super::*;

fn www(more: &str) -> Pool {
    valid(&pool(more)).pools[0].as_ref().clone()
}

#[test]
fn workers_go_on_when_only_an_open_socket_gets_other_attributes() {
    let now = www("");
    let mut wanted = www("");
    assert!(now.has_workers_for(&wanted));
    wanted.listen.backlog += 7;
    wanted.listen.mode = 0o600;
    wanted.listen.owner = Some("www-data".to_owned());
    wanted.listen.acl_groups.push("www-data".to_owned());
    assert!(now.has_workers_for(&wanted));
    wanted.listen.allowed_clients.push([127, 0, 0, 1].into());
    assert!(!now.has_workers_for(&wanted), "workers check whom they accept");
    for more in ["request_terminate_timeout = \"7s\"", "clear_env = false"] {
        assert!(!now.has_workers_for(&www(more)), "{more}");
    }
}

#[test]
fn workers_do_not_go_on_at_another_address() {
    let mut wanted = www("");
    wanted.listen.address = Address::Unix(PathBuf::from("/run/other.sock"));
    assert!(!www("").has_workers_for(&wanted));
}

#[test]
fn instances_go_on_whatever_their_number() {
    let now = www("");
    let mut wanted = www("");
    wanted.pm = ProcessManager::Ordered { max_children: 77 };
    assert!(now.has_instances_for(&wanted) && !now.has_workers_for(&wanted));
    wanted.listen.backlog = 7;
    assert!(!now.has_instances_for(&wanted));
}

#[test]
fn the_inspector_goes_on_unless_what_it_looks_at_changes() {
    let applications = |keys: &str| {
        let text = format!(
            "[pool.www]\nlisten = \"/run/a.sock\"\nrouting = \"application\"\n[pool.www.applications]\n\
             directories = [\"/srv/www\"]\n{keys}\n"
        );
        valid(&text).pools[0]
            .applications
            .clone()
            .expect("it has applications")
    };
    let now = applications("");
    for (keys, goes_on) in [
        ("", true),
        ("max = 9", true),
        ("max_idle_time = 0", true),
        ("restart_dir = \"var/restart\"", false),
        ("releases = \"current\"", false),
        ("default_user = \"www-data\"\nuser_switching = false", false),
    ] {
        assert_eq!(now.has_inspector_for(&applications(keys)), goes_on, "{keys}");
    }
}
