//! Finds sockets that a non-root user can't create, and root's sockets that no web server can connect to.

use forkyard_config::{Address, Listen, Pool};
use forkyard_sys::identity;
use nix::unistd::{AccessFlags, access, getegid, getgroups};
use std::path::Path;
use std::sync::Arc;

/// An operation that this user has no permission for.
#[derive(Debug)]
pub(super) struct Denied<'c> {
    pub(super) pool: &'c Pool,
    /// The socket's setting.
    pub(super) key: &'static str,
    pub(super) problem: String,
}

pub(super) const REMEDY: &str = "start forkyard as root, or name what belongs to this user";

pub(super) const CLOSED_REMEDY: &str = "give it to the web server's user, with listen.owner = \"www-data\" for example, or set listen.group or listen.mode";
/// Everybody may connect: connecting needs write permission (unix(7)).
const WRITABLE_BY_ALL: u32 = 0o002;

/// Returns the sockets that only root and its group could connect to if this user started the daemon.
pub(super) fn closed(pools: &[Arc<Pool>]) -> Vec<Denied<'_>> {
    if !identity::is_root() {
        return Vec::new();
    }
    let found = pools.iter().filter(|pool| is_closed(&pool.listen));
    found
        .map(|pool| Denied {
            pool,
            key: "listen",
            problem: format!(
                "the socket is root's with mode {:04o}, and a web server that runs as another user can't connect",
                pool.listen.mode
            ),
        })
        .collect()
}

fn is_closed(listen: &Listen) -> bool {
    let Listen {
        address,
        owner,
        group,
        mode,
        acl_users,
        acl_groups,
        ..
    } = listen;
    let is_roots = owner.is_none() && group.is_none() && acl_users.is_empty() && acl_groups.is_empty();
    matches!(address, Address::Unix(_)) && is_roots && mode & WRITABLE_BY_ALL == 0
}

/// Returns the operations without permission; none for root.
pub(super) fn denied(pools: &[Arc<Pool>]) -> Vec<Denied<'_>> {
    if identity::is_root() {
        return Vec::new();
    }
    let of_pool = |pool: &'_ Arc<Pool>| {
        let sockets = [
            ("listen", Some(&pool.listen)),
            ("status_listen", pool.pages.status_listen.as_deref()),
            ("http_listen", pool.http_listen.as_deref()),
        ];
        let found = sockets.map(|(key, listen)| listen.map_or_else(Vec::new, |it| said(key, it)));
        found.into_iter().flatten().collect::<Vec<_>>()
    };
    let found = pools.iter().flat_map(|pool| {
        let all = of_pool(pool).into_iter();
        all.map(move |(key, problem)| Denied { pool, key, problem })
    });
    found.collect()
}

fn said(key: &'static str, listen: &Listen) -> Vec<(&'static str, String)> {
    let Address::Unix(path) = &listen.address else {
        return Vec::new();
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut found = Vec::new();
    if directory.is_dir() && access(directory, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        found.push((
            key,
            format!("this user can't make a socket in {}", directory.display()),
        ));
    }
    if !listen.acl_users.is_empty() || !listen.acl_groups.is_empty() {
        return found;
    }
    let owner = listen
        .owner
        .as_deref()
        .and_then(|name| Some((name, identity::find_owner(name).ok()?)));
    let group = listen
        .group
        .as_deref()
        .and_then(|name| Some((name, identity::find_group(name).ok()?)));
    if let Some((name, _)) = owner.filter(|(_, (uid, _))| *uid != identity::own_user()) {
        found.push((key, format!("this user can't give the socket to the user {name}")));
    } else if let Some((name, _)) = group.filter(|(_, gid)| !is_own_group(*gid)) {
        found.push((
            key,
            format!("this user can't give the socket to the group {name}"),
        ));
    }
    found
}

fn is_own_group(gid: u32) -> bool {
    let others = getgroups().unwrap_or_default();
    getegid().as_raw() == gid || others.iter().any(|other| other.as_raw() == gid)
}
