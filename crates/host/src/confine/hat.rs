//! AppArmor: changes to the profile `CURRENT//HAT`, as php-fpm does.

use super::ConfineError;
use forkyard_sys::file;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

const KEY: &str = "apparmor_hat";
const ENABLED: &str = "/sys/module/apparmor/parameters/enabled";
const MOST_BYTES: usize = 4096;

pub(super) fn check(hat: &str) -> Result<(), ConfineError> {
    let enabled = std::fs::read_to_string(ENABLED).unwrap_or_default();
    if enabled.trim() == "Y" {
        return Ok(());
    }
    let reason = format!(
        "failed to query apparmor confinement. Please check if \"/proc/*/attr/current\" is read and writeable. \
         AppArmor is not enabled in this kernel ({ENABLED} is not there or not Y), so there is no hat {hat:?} to \
         change to; leave it out"
    );
    Err(ConfineError::new(KEY, reason))
}

/// Opened early, because a chroot has no /proc.
pub(super) fn attributes() -> Result<File, ConfineError> {
    let own = ["/proc/thread-self/attr/apparmor", "/proc/thread-self/attr"];
    let path = own.into_iter().map(Path::new).find(|path| path.is_dir());
    let opened = path.ok_or_else(|| "no /proc".to_owned()).and_then(|path| {
        let file = File::open(path);
        file.map_err(|error| error.to_string())
    });
    opened.map_err(|error| query_failed(&error))
}

pub(super) fn change(attributes: &File, hat: &str) -> Result<(), ConfineError> {
    // The kernel requires that one process opens and writes.
    let open =
        |write| file::open_at(attributes, "current", write).map_err(|error| query_failed(&error.to_string()));
    let mut text = Vec::new();
    let read = open(false)?.take(MOST_BYTES as u64).read_to_end(&mut text);
    read.map_err(|error| query_failed(&error.to_string()))?;
    let wanted = profile(&String::from_utf8_lossy(&text), hat);
    let written = open(true)?.write_all(format!("changeprofile {wanted}").as_bytes());
    written.map_err(|error| {
        ConfineError::new(
            KEY,
            format!("failed to change to new confinement ({wanted}): {error}"),
        )
    })
}

fn query_failed(error: &str) -> ConfineError {
    let reason = format!(
        "failed to query apparmor confinement. Please check if \"/proc/*/attr/current\" is read and writeable: {error}"
    );
    ConfineError::new(KEY, reason)
}

/// `current` is `NAME (MODE)` or `unconfined`.
fn profile(current: &str, hat: &str) -> String {
    let current = current.trim_end_matches(['\n', '\0']);
    let name = current.rsplit_once(" (").map_or(current, |(name, _)| name);
    format!("{name}//{hat}")
}

#[cfg(test)]
mod tests {
    use super::profile;

    #[test]
    fn a_hat_is_a_child_of_the_present_profile() {
        assert_eq!(profile("php-fpm (enforce)\n", "www"), "php-fpm//www");
        assert_eq!(profile("/usr/sbin/a (b) (complain)", "x"), "/usr/sbin/a (b)//x");
        assert_eq!(profile("unconfined\n", "x"), "unconfined//x");
    }
}
