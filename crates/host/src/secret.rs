//! Secrets in files that no other user may read.

use forkyard_config::Secret;
use forkyard_sys::identity;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MOST_BYTES: u64 = 1_024;

/// Why a file is rejected.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It can't be read.
    #[error("{0}: {1}{remedy}", remedy = match .1.kind() {
        io::ErrorKind::NotFound => format!("; {}", to_make(.0)),
        _ => String::new(),
    })]
    Unread(PathBuf, #[source] io::Error),
    /// Others may read or write it, or another user owns it.
    #[error(
        "{0} is no secret: it has to be a file of root or of this user that no other may read or write; \
         {make}",
        make = to_make(.0)
    )]
    Open(PathBuf),
    /// The content is too short, too long, or more than one word.
    #[error(
        "{0} has no secret: it has to be one word of {least} to {most} characters; {make}",
        least = Secret::LENGTHS.start(),
        most = Secret::LENGTHS.end(),
        make = to_make(.0)
    )]
    Unfit(PathBuf),
}

fn to_make(path: &Path) -> String {
    let path = path.display();
    format!("make one: install -m 600 /dev/null {path} && head -c 32 /dev/urandom | base64 -w 0 > {path}")
}

/// Reads a secret from a file of root's or this process's user that no other user can read or write.
///
/// # Errors
/// The file is rejected.
pub fn read(path: &Path) -> Result<Secret, SecretError> {
    let unread = |error| SecretError::Unread(path.to_owned(), error);
    // Checks the opened file, which can't be swapped; doesn't block on a FIFO.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(unread)?;
    let data = file.metadata().map_err(unread)?;
    let is_owned = data.uid() == 0 || data.uid() == identity::own_user();
    if !data.is_file() || !is_owned || data.mode() & 0o077 != 0 {
        return Err(SecretError::Open(path.to_owned()));
    }
    let mut text = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut text).map_err(unread)?;
    let secret = String::from_utf8(text).ok().and_then(|text| Secret::read(&text));
    secret.ok_or_else(|| SecretError::Unfit(path.to_owned()))
}

/// Why the daemon would reject a file; `None` also if only root could find out.
pub fn unfit(path: &Path) -> Option<SecretError> {
    read(path).err().filter(|error| match error {
        SecretError::Unread(_, error) => {
            identity::is_root() || error.kind() != io::ErrorKind::PermissionDenied
        }
        SecretError::Open(_) | SecretError::Unfit(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_file_that_nobody_else_reads_has_a_secret() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("secret");
        let read = || super::read(&path).map_err(|error| error.to_string());
        let missing = read().expect_err("there is none");
        assert!(missing.contains("/dev/urandom"), "{missing}");
        fs::write(&path, "0123456789abcdef\n").expect("a file");
        for (mode, is_read) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
            assert_eq!(read().is_ok(), is_read, "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
        if identity::is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).expect("an owner");
            assert!(read().expect_err("another user's").contains("is no secret"));
            std::os::unix::fs::chown(&path, Some(0), None).expect("an owner");
        }
        fs::write(&path, "short\n").expect("a file");
        assert!(read().expect_err("too short").contains("16 to 255"));
        let other = super::read(directory.path()).expect_err("a directory");
        assert!(matches!(other, SecretError::Open(_)), "{other}");
    }
}
