//! Checks that the pools' users can reach their applications' directories.

use forkyard_config::{Application, Pool};
use forkyard_spawn::setupper::{Barrier, barrier};
use forkyard_sys::error::Error;
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::process::{Apart, Finding};
use nix::errno::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The timeout for the checks of one user.
const LIMIT: Duration = Duration::from_secs(5);

/// A directory that a pool's user can't reach.
#[derive(Debug)]
pub(super) struct Barred<'c> {
    pub(super) pool: &'c Pool,
    /// The problem and its solution.
    pub(super) barrier: Barrier,
}

/// A pool and a directory that its user must reach.
type RequiredDirectory<'c> = (&'c Pool, &'c Path);

/// Returns the unreachable directories. One process per user checks with that user's permissions. Application pools and
/// pools with a chroot are skipped.
pub(super) fn barred(pools: &[Arc<Pool>]) -> Vec<Barred<'_>> {
    let mut wanted: BTreeMap<(Option<&str>, Option<&str>), Vec<RequiredDirectory<'_>>> = BTreeMap::new();
    for pool in pools {
        if pool.applications.is_none() && pool.setup.chroot.is_none() {
            let user = pool.account.user.as_deref().filter(|_| identity::is_root());
            let of_user = wanted.entry((user, pool.account.group.as_deref())).or_default();
            of_user.extend(directories(&pool.application).map(|directory| (&**pool, directory)));
        }
    }
    let found = wanted.into_iter().map(|((user, group), ways)| match user {
        Some(user) => walk_as(user, group, &ways).unwrap_or_else(|error| {
            log::debug!(target: "forkyard::check", "can't look with the rights of {user}: {error}");
            Vec::new()
        }),
        None => walk(&Identity::current(), &ways),
    });
    found.flatten().collect()
}

fn directories(application: &Application) -> impl Iterator<Item = &Path> {
    let of_php = application.php().and_then(|php| php.script_root.as_ref());
    let of_fastcgi = (application.fastcgi()).and_then(|fastcgi| fastcgi.script_root.as_ref());
    let scripts = of_php.or(of_fastcgi).map(|root| root.path.as_path());
    application.root().into_iter().chain(scripts)
}

/// Checks with this process's permissions.
fn walk<'c>(identity: &Identity, ways: &[RequiredDirectory<'c>]) -> Vec<Barred<'c>> {
    let user = identity.name.clone().unwrap_or_else(|| identity.uid.to_string());
    let found = ways
        .iter()
        .filter_map(|(pool, directory)| Some((pool, barrier(directory, &user)?)));
    found.map(|(pool, barrier)| Barred { pool, barrier }).collect()
}

/// Checks in a process with another user's permissions.
fn walk_as<'c>(
    user: &str,
    group: Option<&str>,
    ways: &[RequiredDirectory<'c>],
) -> Result<Vec<Barred<'c>>, Error> {
    let identity = Identity::look_up(user, group)?;
    let barriers = || -> Vec<Option<(String, String)>> {
        let found = ways.iter().map(|(_, directory)| barrier(directory, user));
        found
            .map(|found| found.map(|it| (it.summary, it.solution)))
            .collect()
    };
    let found = ways.iter().zip(as_user(&identity, user, barriers)?);
    let found = found.filter_map(|((pool, _), found)| Some((pool, found?)));
    let found = found.map(|(pool, (summary, solution))| Barred {
        pool,
        barrier: Barrier { summary, solution },
    });
    Ok(found.collect())
}

/// Calls a function in a process with the user's permissions, and returns its result.
///
/// # Errors
/// The process can't take the permissions, or is late: a tenant's file system may block forever.
pub(super) fn as_user<T: Serialize + DeserializeOwned>(
    identity: &Identity,
    user: &str,
    look: impl FnOnce() -> T,
) -> Result<T, Error> {
    let child = Apart::begin(&[], || match identity::become_user(identity) {
        Ok(()) => Finding::from(serde_json::to_vec(&look()).unwrap_or_default()),
        Err(_) => Finding::default(),
    })?;
    let late = || Error::new("look", format!("what user {user} can reach"), Errno::ETIMEDOUT);
    let said = child.wait(LIMIT).ok_or_else(late)?.bytes;
    serde_json::from_slice(&said).map_err(|_| Error::new("setuid", user, Errno::EPERM))
}
