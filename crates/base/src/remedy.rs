//! Hints for file and socket errors, to append to the error's text.

use std::io::ErrorKind;
use std::path::Path;

/// Returns `; ` and a hint for a file that can't be created or opened, or an empty text.
pub fn of_file(path: &Path, kind: ErrorKind) -> String {
    let directory = path.parent().unwrap_or(path).display();
    match kind {
        ErrorKind::NotFound => {
            format!("; make the directory {directory} before the start, or give another path")
        }
        ErrorKind::NotADirectory => format!("; {directory} is not a directory: give another path"),
        ErrorKind::IsADirectory => "; give the path of a file, not of a directory".to_owned(),
        ErrorKind::PermissionDenied => {
            format!("; let the daemon's user write to the directory {directory}, or give another path")
        }
        ErrorKind::ReadOnlyFilesystem => {
            format!("; {directory} is on a file system that is read-only: give another path")
        }
        _ => String::new(),
    }
}

/// Returns a hint for a socket error. `call`: the system call that failed; `address`: a path or a TCP address.
pub fn of_socket(call: &str, address: &str, kind: ErrorKind) -> String {
    let is_path = address.starts_with('/');
    match (call, kind) {
        ("bind" | "unlink", _) if is_path => of_file(Path::new(address), kind),
        ("bind", ErrorKind::PermissionDenied) => {
            "; ports below 1024 are for root and for programs with CAP_NET_BIND_SERVICE: listen on another".to_owned()
        }
        ("bind", ErrorKind::AddrNotAvailable) => {
            "; give an address that this machine has, or bring it up before the start".to_owned()
        }
        ("chown", ErrorKind::PermissionDenied) => {
            "; only root can give a socket to another user or group: start as root, or leave out owner and group"
                .to_owned()
        }
        ("connect", ErrorKind::PermissionDenied) => {
            "; another user's socket is there: remove it, or listen elsewhere".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_remedy() {
        let file = |kind| of_file(Path::new("/nope/x.pid"), kind);
        assert_eq!(
            file(ErrorKind::NotFound),
            "; make the directory /nope before the start, or give another path"
        );
        assert_eq!(
            file(ErrorKind::PermissionDenied),
            "; let the daemon's user write to the directory /nope, or give another path"
        );
        assert_eq!(
            file(ErrorKind::IsADirectory),
            "; give the path of a file, not of a directory"
        );
        assert_eq!(file(ErrorKind::StorageFull), "");
        let bind = |address, kind| of_socket("bind", address, kind);
        assert_eq!(
            bind("/nope/x.pid", ErrorKind::NotFound),
            file(ErrorKind::NotFound)
        );
        assert!(bind("127.0.0.1:80", ErrorKind::PermissionDenied).contains("below 1024"));
        assert!(bind("192.0.2.1:80", ErrorKind::AddrNotAvailable).contains("this machine has"));
        assert_eq!(of_socket("listen", "x", ErrorKind::NotFound), "");
    }
}
