//! Two pools of different users can't reach each other's files.

use super::assert_quiet;
use crate::support::prelude::*;

const USERS: [&str; 2] = ["www-data", "daemon"];

fn start() -> Daemon {
    Daemon::start(|dir| {
        let one = |user: &str| {
            let settings = format!("pm = \"static\"\nmax_children = 1\nuser = \"{user}\"\n");
            pool(dir, user, &settings, PHP)
        };
        USERS.map(one).concat()
    })
}

fn id(user: &str) -> (u32, u32) {
    let user = nix::unistd::User::from_name(user)
        .expect("users")
        .expect("a user");
    (user.uid.as_raw(), user.gid.as_raw())
}

fn run(daemon: &Daemon, pool: &str, script: &str, query: &str) -> String {
    daemon.ask(pool, &Params::get(&daemon.dir, script, query)).body()
}

#[test]
fn a_worker_reads_its_own_user_s_files_and_no_other_s() {
    skip_if!(needs_root());
    let daemon = start();
    daemon.write(
        "read.php",
        "<?php echo @file_get_contents($_GET['file']) ?: 'refused';",
    );
    for user in USERS {
        let secret = daemon.write(&format!("{user}.secret"), user);
        let (uid, gid) = id(user);
        chown(&secret, Some(uid), Some(gid)).expect("chown");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("chmod");
    }
    for pool in USERS {
        for owner in USERS {
            let file = daemon.dir.join(format!("{owner}.secret"));
            let answer = run(&daemon, pool, "read.php", &format!("file={}", file.display()));
            assert_eq!(
                answer,
                if pool == owner { owner } else { "refused" },
                "{pool} reads {owner}'s file"
            );
        }
    }
    assert_eq!(run(&daemon, "daemon", "read.php", "file=/etc/shadow"), "refused");
    assert_quiet(&daemon);
}

#[test]
fn a_worker_is_its_user_with_its_groups_and_cannot_go_back() {
    skip_if!(needs_root());
    let daemon = start();
    let script = "<?php $back = posix_setuid(0) || posix_seteuid(0);
        echo json_encode([posix_getuid(), posix_geteuid(), posix_getgid(), posix_getegid(), $back]);
        $groups = posix_getgroups(); sort($groups); echo ' ', implode(',', $groups);";
    daemon.write("who.php", script);
    for user in USERS {
        let (uid, gid) = id(user);
        let name = std::ffi::CString::new(user).expect("a name");
        let groups = nix::unistd::getgrouplist(&name, gid.into()).expect("groups");
        let mut groups: Vec<u32> = groups.iter().map(|group| group.as_raw()).collect();
        groups.sort_unstable();
        let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
        let wanted = format!("[{uid},{uid},{gid},{gid},false] {}", groups.join(","));
        assert_eq!(run(&daemon, user, "who.php", ""), wanted);
    }
}

#[test]
fn a_worker_sees_neither_the_other_s_processes_memory_nor_its_files_by_proc() {
    skip_if!(needs_root());
    let daemon = start();
    daemon.write(
        "look.php",
        "<?php echo json_encode([@scandir(\"/proc/$_GET[pid]/fd\"), @fopen(\"/proc/$_GET[pid]/mem\", 'r')]);",
    );
    let other = daemon.wait_for_workers("daemon", 1)[0];
    for pid in [other, daemon.pid()] {
        assert_eq!(
            run(&daemon, "www-data", "look.php", &format!("pid={pid}")),
            "[false,false]"
        );
    }
}

/// The pool has a separate OPcache: one path is a different script in each chroot.
#[test]
fn a_script_in_a_chroot_sees_nothing_outside() {
    skip_if!(needs_root());
    let daemon = Daemon::start(|dir| {
        let one = |user: &str| {
            let root = dir.join(format!("root-{user}"));
            fill(&root, user);
            let settings = format!(
                "pm = \"static\"\nmax_children = 1\nuser = \"{user}\"\nchroot = \"{}\"\nchdir = \"/inside\"\n",
                root.display()
            );
            pool(dir, user, &settings, PHP)
        };
        USERS.map(one).concat()
    });
    for user in USERS {
        let answer = daemon.ask(user, &Params::get(Path::new(""), "index.php", ""));
        assert_eq!(
            answer.body(),
            format!("{user} [\".\",\"..\",\"index.php\",\"inside\"] false /index.php")
        );
        let worker = daemon.wait_for_workers(user, 1)[0];
        let inside = |link: &str| fs::read_link(format!("/proc/{worker}/{link}")).expect("a link");
        assert_eq!(inside("root"), daemon.dir.join(format!("root-{user}")));
        assert_eq!(inside("cwd"), daemon.dir.join(format!("root-{user}/inside")));
    }
    assert_quiet(&daemon);
}

fn fill(root: &Path, user: &str) {
    fs::create_dir_all(root.join("inside")).expect("chroot");
    let script = format!(
        "<?php echo '{user} ', json_encode(scandir('/')), ' ', json_encode(file_exists('/etc/passwd')), ' ', __FILE__;"
    );
    fs::write(root.join("index.php"), script).expect("script");
}

#[test]
fn without_root_workers_are_the_master_s_user() {
    let dir = directory();
    let settings = "user = \"www-data\"\npm = \"static\"\nmax_children = 1\n";
    write_file(
        dir.path().join("forkyard.toml"),
        pool(dir.path(), "www", settings, PHP),
    );
    let mut command = forkyard(&["run"], dir.path());
    let mut user = nix::unistd::geteuid().as_raw();
    if user == 0 {
        let (uid, gid) = id("daemon");
        command.uid(uid).gid(gid);
        user = uid;
    }
    let daemon = Daemon::launch(dir.path(), command);
    daemon.wait_for("[pool www] user: it is ignored; only a master that runs as root can do this");
    daemon.wait_for("ready to handle connections");
    daemon.write("who.php", "<?php echo posix_geteuid();");
    assert_eq!(daemon.get("www", "who.php").body(), user.to_string());
}
