//! Which pools have workers of a zygote without asking for it.

use super::{FIRST_USER, PHP};
use crate::skip::needs_root;
use crate::support::daemon::{Daemon, directory, forkyard, pool};
use crate::support::{is_root, process, until};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// A pool that does not say which preloader it wants, of the user after so many others.
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

#[test]
fn ondemand_pools_of_users_have_workers_of_a_zygote_and_others_a_preloader() {
    const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 1\n";
    const STATIC: &str = "pm = \"static\"\nmax_children = 1\n";
    let daemon = Daemon::start(|dir| {
        let control = format!("[global]\ncontrol = \"{}/control.sock\"\n", dir.display());
        let ondemand = |name: &str, user: u32, more: &str| plain(dir, name, user, ONDEMAND, more);
        control
            + &ondemand("a", 0, "")
            + &ondemand("b", 1, "")
            + &ondemand("own", 2, "preloader = \"own\"\n")
            + &plain(dir, "static", 3, STATIC, "")
    });
    daemon.write("uid.php", "<?php echo posix_geteuid();");
    let uid = |user: u32| match is_root() {
        true => FIRST_USER + user,
        false => nix::unistd::getuid().as_raw(),
    };
    for (user, name) in (0..).zip(["a", "b", "own", "static"]) {
        assert_eq!(daemon.get(name, "uid.php").body(), uid(user).to_string());
    }
    let expected: &[&str] = match is_root() {
        true => &["own", "static", "zygote"],
        false => &["a", "b", "own", "static"],
    };
    until("their preloaders", || {
        (preloaders(&daemon) == expected).then_some(())
    });
    let output = forkyard(&["status", "--json"], &daemon.dir)
        .output()
        .expect("forkyard");
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let pools = status["pools"].as_array().expect("pools").iter();
    let kinds: Vec<_> = pools
        .map(|pool| {
            let generation = &pool["generations"][0];
            (generation["preloading"].as_str(), generation["unfit"].as_str())
        })
        .collect();
    let usual = Some(if is_root() { "zygote" } else { "own" });
    let own = (Some("own"), None);
    assert_eq!(kinds, [(usual, None), (usual, None), own, own], "{status:#}");
}

/// What root has in a container by default.
const CONTAINER: &str = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,+net_bind_service,+net_raw,\
                         +sys_chroot,+mknod,+audit_write,+setfcap";

#[test]
fn root_in_a_container_has_a_zygote_too_whose_workers_enter_their_users_directories() {
    if needs_root() {
        return;
    }
    let dir = directory();
    let mut text = String::new();
    for (user, name) in (0..).zip(["a", "b"]) {
        let home = dir.path().join(name);
        fs::create_dir(&home).expect("directory");
        fs::write(
            home.join("code.php"),
            "<?php echo getcwd(), ' ', posix_geteuid();",
        )
        .expect("script");
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

/// What pools once wrote to share a preloader.
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
    let said =
        String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success());
    assert!(
        said.contains("\"shared:x\" is not a kind of preloader; write \"own\", or \"zygote\", which has taken the place of \"shared\""),
        "{said}"
    );
}
