//! Checks whether a user, such as the web server's, can connect to the pools' sockets, by connecting as that user.

use super::init;
use super::reach::as_user;
use forkyard_protocol::control::PoolStatus;
use forkyard_spawn::setupper::barrier;
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::{self as sys, accounts, socket};
use nix::errno::Errno;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// nginx's configuration, with its user.
const NGINX: &str = "/etc/nginx/nginx.conf";

/// Returns the web server's user: nginx's, or a distribution's default.
pub(super) fn web_user() -> Option<String> {
    let nginx = fs::read_to_string(NGINX).ok().and_then(|text| nginx_user(&text));
    let exists = |name: &String| accounts::named(name).is_ok_and(|user| user.is_some());
    nginx
        .filter(exists)
        .or_else(|| init::USERS.map(str::to_owned).into_iter().find(exists))
}

fn nginx_user(text: &str) -> Option<String> {
    let line = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("user ") || line.starts_with("user\t"))?;
    let name = line["user".len()..]
        .split(';')
        .next()?
        .split_whitespace()
        .next()?;
    Some(name.to_owned())
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    System(#[from] sys::Error),
    #[error("only root can try as {user}; as yourself: --web-server={own}")]
    NotRoot { user: String, own: String },
}

/// Returns the reasons why the user can't connect to these pools' sockets, one per line.
///
/// # Errors
/// The test itself failed.
pub(super) fn problems(user: &str, pools: &[&PoolStatus]) -> Result<Vec<String>, ConnectError> {
    // Every user can connect to a TCP port.
    let sockets = pools.iter().filter(|pool| pool.listen.starts_with('/'));
    let sockets: Vec<(&str, &Path)> = sockets
        .map(|pool| (pool.name.as_str(), Path::new(&pool.listen)))
        .collect();
    let paths: Vec<&Path> = sockets.iter().map(|(_, path)| *path).collect();
    let wanted = Identity::look_up(user, None)?;
    let found = match wanted.uid {
        uid if uid == identity::own_user() => paths.iter().map(|path| attempt(path, user)).collect(),
        _ if identity::is_root() => {
            let attempts =
                || -> Vec<Option<String>> { paths.iter().map(|path| attempt(path, user)).collect() };
            as_user(&wanted, user, attempts)?
        }
        _ => {
            let (user, own) = (user.to_owned(), own_name());
            return Err(ConnectError::NotRoot { user, own });
        }
    };
    let found = sockets.iter().zip(found);
    Ok(found
        .filter_map(|((pool, _), found)| Some(format!("{pool}: {}", found?)))
        .collect())
}

fn own_name() -> String {
    let own = Identity::current();
    own.name.unwrap_or_else(|| own.uid.to_string())
}

/// Connects with this process's permissions.
fn attempt(path: &Path, user: &str) -> Option<String> {
    // A full queue still counts as reachable.
    let error = socket::connect_unix(path).err()?;
    let place = path.display();
    let way = fs::metadata(path).is_err().then(|| barrier(path, user)).flatten();
    Some(match (way, error.errno) {
        (Some(way), _) => format!("{user} can't connect to {place}: {}", way.summary),
        (None, Errno::EACCES) => format!(
            "{user} can't connect to {place}: it is {}; set listen.owner = {user:?}, listen.group or listen.mode, then reload",
            rights(path)
        ),
        (None, Errno::ECONNREFUSED) => format!("{user} can't connect to {place}: no process listens there"),
        (None, errno) => format!("{user} can't connect to {place}: {}", errno.desc()),
    })
}

/// Describes who has write permission on the socket, which connecting needs.
fn rights(path: &Path) -> String {
    let Ok(file) = fs::metadata(path) else {
        return "closed to this user".to_owned();
    };
    let owner = accounts::numbered(file.uid()).ok().flatten();
    let user = owner.map_or_else(|| file.uid().to_string(), |owner| owner.name);
    format!(
        "{user}'s, of group {}, with mode {:04o}",
        group(file.gid()),
        file.mode() & 0o7777
    )
}

fn group(gid: u32) -> String {
    let found = nix::unistd::Group::from_gid(gid.into());
    found
        .ok()
        .flatten()
        .map_or_else(|| gid.to_string(), |group| group.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_names_its_user() {
        let text = "# user nobody;\nuser  web web;\nworker_processes auto;\n";
        assert_eq!(nginx_user(text).as_deref(), Some("web"));
        assert_eq!(nginx_user("users x;\nevents {}\n"), None);
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_told_apart_from_one_that_listens() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bind");
        assert_eq!(attempt(&path, "me"), None);
        drop(listener);
        let said = attempt(&path, "me").expect("a problem");
        assert!(said.ends_with("no process listens there"), "{said}");
        let missing = attempt(&dir.path().join("no/y.sock"), "me").expect("a problem");
        assert!(missing.contains("There is no "), "{missing}");
    }
}
