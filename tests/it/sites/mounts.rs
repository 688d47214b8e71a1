//! Applications on file systems where a user controls who owns the files.

use super::{Sites, USERS};
use crate::skip::needs_fuse;
use crate::support::prelude::*;
use crate::support::process::Mounted;

fn mounted(command: &mut Command, point: &Path) -> Mounted {
    let output = command.arg(point).output();
    assert_success(&output.expect("Debian packages bindfs and mount"));
    Mounted(point.to_owned())
}

/// Two sites: one whose files a FUSE file system gives to another user, and one that a user had mount(8) mount.
fn mount(sites: &Sites) -> [Mounted; 2] {
    let code = "<?php echo posix_geteuid();";
    let source = sites.daemon.dir.join("source");
    fs::create_dir(&source).expect("mkdir");
    fs::write(source.join("index.php"), code).expect("write");
    let owner = format!("--force-user={}", USERS[0].0);
    let group = format!("--force-group={}", USERS[0].0);
    let fused = sites.apps.join("fused");
    fs::create_dir(&fused).expect("mkdir");
    let mut bindfs = Command::new("bindfs");
    bindfs.args([&owner, &group, "-o", "allow_other"]).arg(&source);
    let fused = mounted(&mut bindfs, &fused);
    let wished = sites.apps.join("wished");
    fs::create_dir(&wished).expect("mkdir");
    let mut tmpfs = Command::new("mount");
    tmpfs.args([
        "-t",
        "tmpfs",
        "-o",
        &format!("nosuid,mode=755,user={}", USERS[1].0),
        "none",
    ]);
    let wished = mounted(&mut tmpfs, &wished);
    fs::write(wished.0.join("index.php"), code).expect("write");
    for path in [wished.0.clone(), wished.0.join("index.php")] {
        chown(path, Some(USERS[0].1), Some(USERS[0].1)).expect("chown");
    }
    [fused, wished]
}

#[test]
fn where_a_user_says_whose_a_file_is_nothing_runs_unless_the_operator_allows_it() {
    skip_if!(needs_fuse());
    let sites = Sites::start("max = 4");
    let mounts = mount(&sites);
    for name in ["fused", "wished"] {
        let (status, body) = sites.get(&format!("/{name}/"));
        assert_eq!(status, 503, "{name}: {body}");
        let wanted = format!("{name} is on a file system that a user may have mounted");
        wait_until("the reason", || sites.daemon.log().contains(&wanted));
    }
    super::changes::reload(&sites, "max = 4\nuser_mounts = true", "");
    for name in ["fused", "wished"] {
        wait_until("an answer", || {
            sites.get(&format!("/{name}/")) == (200, USERS[0].1.to_string())
        });
    }
    drop(sites);
    drop(mounts);
}

#[test]
fn a_nosuid_file_system_of_the_operator_s_is_as_any_other() {
    skip_if!(needs_root());
    let sites = Sites::start("max = 4");
    let point = sites.apps.join("plain");
    fs::create_dir(&point).expect("mkdir");
    let mut tmpfs = Command::new("mount");
    tmpfs.args(["-t", "tmpfs", "-o", "nosuid,nodev,mode=755", "none"]);
    let mount = mounted(&mut tmpfs, &point);
    fs::write(point.join("index.php"), "<?php echo posix_geteuid();").expect("write");
    for path in [point.clone(), point.join("index.php")] {
        chown(path, Some(USERS[0].1), Some(USERS[0].1)).expect("chown");
    }
    assert_eq!(sites.body("/plain/"), USERS[0].1.to_string());
    drop(sites);
    drop(mount);
}
