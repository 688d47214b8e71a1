//! Which kind of preloader each kind of pool has.

use super::{FIRST_USER, PHP};
use crate::support::prelude::*;

fn plain(dir: &Path, name: &str, user: u32, settings: &str, application: &str) -> String {
    let user = match is_root() {
        true => format!("user = \"{0}\"\ngroup = \"{0}\"\n", FIRST_USER + user),
        false => String::new(),
    };
    let application = format!("runtime = \"php\"\nversion = \"{PHP}\"\n{application}");
    pool(dir, name, &format!("{user}{settings}"), &application)
}

fn preloaders(daemon: &Daemon) -> Vec<String> {
    let children = process::children(daemon.pid()).into_iter();
    let titles = children.map(process::title);
    let mut names: Vec<String> = titles
        .filter_map(|title| Some(title.strip_prefix("forkyard: preloader ")?.to_owned()))
        .collect();
    names.sort_unstable();
    names
}

const DYNAMIC: &str =
    "pm = \"dynamic\"\nmax_children = 2\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n";
const MANAGERS: [(&str, &str); 3] = [
    ("static", "pm = \"static\"\nmax_children = 1\n"),
    ("dynamic", DYNAMIC),
    ("ondemand", "pm = \"ondemand\"\nmax_children = 1\n"),
];

fn all_kinds(dir: &Path, with_user: bool) -> (String, Vec<String>) {
    let (mut text, mut names, mut user) = (String::new(), Vec::new(), 0);
    for (pm, settings) in MANAGERS {
        for word in ["usual", "own", "zygote"] {
            let name = format!("{pm}-{word}");
            let application = match word {
                "usual" => String::new(),
                word => format!("preloader = \"{word}\"\n"),
            };
            text += &match with_user {
                true => plain(dir, &name, user, settings, &application),
                false => pool(
                    dir,
                    &name,
                    settings,
                    &format!("runtime = \"php\"\nversion = \"{PHP}\"\n{application}"),
                )
                .replace("user = \"www-data\"\n", ""),
            };
            names.push(name);
            user += 1;
        }
    }
    (text, names)
}

fn kinds(daemon: &Daemon) -> Vec<(String, Option<String>, Option<String>)> {
    let status = daemon.status(&[]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let pools = status["pools"].as_array().expect("pools").iter();
    let mut kinds: Vec<_> = pools
        .map(|pool| {
            let generation = &pool["generations"][0];
            let name = text(&pool["name"]).expect("name");
            (name, text(&generation["preloading"]), text(&generation["unfit"]))
        })
        .collect();
    kinds.sort_unstable();
    kinds
}

fn check_kinds(daemon: &Daemon, names: &[String], usual: &str, uid: impl Fn(u32) -> u32) {
    daemon.write("uid.php", "<?php echo posix_geteuid();");
    for (user, name) in (0..).zip(names) {
        assert_eq!(
            daemon.get(name, "uid.php").body(),
            uid(user).to_string(),
            "{name}"
        );
    }
    let kind = |name: &str| match name.rsplit_once('-').expect("a word").1 {
        "usual" => usual.to_owned(),
        word => word.to_owned(),
    };
    let mut expected: Vec<_> = names
        .iter()
        .map(|name| (name.clone(), Some(kind(name)), None))
        .collect();
    expected.sort_unstable();
    assert_eq!(kinds(daemon), expected);
    let mut processes: Vec<String> = names.iter().filter(|name| kind(name) == "own").cloned().collect();
    processes.push("zygote".to_owned());
    processes.sort_unstable();
    wait_until("their preloaders", || preloaders(daemon) == processes);
}

#[test]
fn pools_of_users_have_workers_of_a_zygote_whatever_their_process_manager_is() {
    skip_if!(needs_root());
    let mut names = Vec::new();
    let daemon = Daemon::start(|dir| {
        let (text, all) = all_kinds(dir, true);
        names = all;
        with_control(dir) + &text
    });
    check_kinds(&daemon, &names, "zygote", |user| FIRST_USER + user);
}

#[test]
fn pools_of_a_daemon_without_root_have_preloaders_of_their_own() {
    let dir = directory();
    let (text, names) = all_kinds(dir.path(), false);
    let text = with_control(dir.path()) + &text;
    fs::write(dir.path().join("forkyard.toml"), text).expect("configuration");
    let user = match is_root() {
        true => FIRST_USER,
        false => nix::unistd::getuid().as_raw(),
    };
    chown(dir.path(), Some(user), Some(user)).expect("chown");
    let daemon = Daemon::launch(dir.path(), as_user(forkyard(&["run"], dir.path()), user)).ready();
    check_kinds(&daemon, &names, "own", |_| user);
}

#[test]
fn many_dynamic_pools_cost_one_process_beside_their_workers() {
    const POOLS: u32 = 40;
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let pools = (0..POOLS).map(|user| plain(dir, &format!("p{user}"), user, DYNAMIC, ""));
        pools.collect()
    });
    wait_until("a worker of each pool and one zygote", || {
        let children = process::children(daemon.pid());
        children.len() == POOLS as usize + 1 && preloaders(&daemon) == ["zygote"]
    });
}

const CONTAINER: &str = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,\
                         +sys_chroot,+mknod,+audit_write,+setfcap";

#[test]
fn root_in_a_container_has_a_zygote_too_whose_workers_enter_their_users_directories() {
    skip_if!(needs_root());
    let dir = directory();
    let mut text = String::new();
    for (user, name) in (0..).zip(["a", "b"]) {
        let home = dir.path().join(name);
        fs::create_dir(&home).expect("directory");
        write_file(
            home.join("code.php"),
            "<?php echo getcwd(), ' ', posix_geteuid();",
        );
        let uid = FIRST_USER + user;
        chown(&home, Some(uid), Some(uid)).expect("chown");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).expect("chmod");
        let settings = format!(
            "pm = \"ondemand\"\nmax_children = 1\nchdir = \"{}\"\n",
            home.display()
        );
        text += &plain(dir.path(), name, user, &settings, "");
    }
    fs::write(dir.path().join("forkyard.toml"), text).expect("configuration");
    let daemon = Daemon::start_bounded(dir.path(), CONTAINER);
    for (user, name) in (0..).zip(["a", "b"]) {
        let home = dir.path().join(name);
        assert_eq!(
            daemon.get(name, &format!("{name}/code.php")).body(),
            format!("{} {}", home.display(), FIRST_USER + user)
        );
    }
    assert_eq!(preloaders(&daemon), ["zygote"], "{}", daemon.log());
}

#[test]
fn shared_preloaders_are_refused_with_what_to_write_now() {
    let dir = directory();
    let text = plain(
        dir.path(),
        "a",
        0,
        "pm = \"static\"\nmax_children = 1\n",
        "preloader = \"shared:x\"\n",
    );
    fs::write(dir.path().join("forkyard.toml"), text).expect("configuration");
    let checked = forkyard(&["check"], dir.path()).output().expect("forkyard");
    let said = text_of(&checked.stdout) + &String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success());
    assert_contains(
        &said,
        "\"shared:x\" is not a kind of preloader; write \"own\", or \"zygote\", which has taken the place of \"shared\"",
    );
}
