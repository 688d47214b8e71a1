//! Private /tmp and /var/tmp (mount_namespaces(7)).

use super::ConfineError;
use forkyard_sys::file::Held;
use forkyard_sys::identity;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::path::Path;

const KEY: &str = "confine.private_tmp";
/// World-writable and sticky.
const OPTIONS: &str = "mode=1777";
const PLACES: [&str; 2] = ["tmp", "var/tmp"];

pub(super) fn check(has_preloader: bool) -> Result<(), ConfineError> {
    let failed = |reason: &str| Err(ConfineError::new(KEY, reason));
    if !has_preloader {
        return failed("confine.private_tmp needs a preloader, and this pool has none; leave it out");
    }
    if !identity::is_root() {
        return failed("only a master that runs as root can do this; leave it out");
    }
    if !Path::new("/proc/self/ns/mnt").exists() {
        return failed("this kernel has no mount name spaces; leave it out");
    }
    Ok(())
}

pub(super) fn make_private(root: Option<&Path>) -> Result<(), ConfineError> {
    let failed = |what: &str, errno: nix::Error| ConfineError::new(KEY, format!("{what}: {}", errno.desc()));
    unshare(CloneFlags::CLONE_NEWNS).map_err(|errno| failed("unshare", errno))?;
    // Propagates later mounts of the host, but not the reverse.
    let slave = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(None::<&str>, "/", None::<&str>, slave, None::<&str>).map_err(|errno| failed("mount /", errno))?;
    for place in PLACES {
        let path = root.unwrap_or(Path::new("/")).join(place);
        // In a chroot its owner may have placed a link there, or nothing.
        let Ok(held) = Held::open(&path) else { continue };
        if !held.is_directory() {
            continue;
        }
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("tmpfs"), &held.path(), Some("tmpfs"), flags, Some(OPTIONS))
            .map_err(|errno| failed(&format!("mount {}", path.display()), errno))?;
    }
    Ok(())
}
