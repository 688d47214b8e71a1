//! The directory of a pool's compiled scripts: its user's, below the configured one.

use crate::context::Context;
use forkyard_config::{OPCACHE_FILE_CACHE, Pool};
use forkyard_core::master::event::PoolId;
use forkyard_sys::identity::{self, Identity, become_user};
use forkyard_sys::process::{self, Finding};
use forkyard_sys::{Error, dir};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// A child's answer: nothing is kept.
const DROPPED: &[u8] = b"dropped";

impl Context {
    /// Drops the compiled scripts of a release directory, which may have had other files before. A child removes them with
    /// the rights of the pool's user.
    pub(crate) fn drop_compiled(&self, id: PoolId, release: &Path) {
        let serving = self.pools.by_id.get(&id).and_then(|pool| pool.serving);
        let settings = serving.and_then(|id| Some(&self.pools.generations.get(&id)?.settings));
        let Some((settings, php)) = settings.and_then(|it| Some((it, it.pool.application.php()?))) else {
            return;
        };
        let mut values = php.php_admin_value.iter();
        let Some((_, cache)) =
            values.find(|(name, _)| php.opcache_cache.is_some() && name == OPCACHE_FILE_CACHE)
        else {
            return;
        };
        let user = settings.identity.as_ref().filter(|_| identity::is_root());
        let found = process::within_a_moment(&settings.pool.name, || {
            let may = user.map(become_user).transpose();
            let dropped = may.is_ok() && drop_below(Path::new(cache), release);
            Finding::from(if dropped { DROPPED.to_vec() } else { Vec::new() })
        });
        if found.is_none_or(|found| found.bytes != DROPPED) {
            log::warn!(
                "[pool {}] compiled scripts of {} could not be dropped from {cache}: remove them if it had other files before",
                settings.pool.name,
                release.display()
            );
        }
    }
}

/// Removes what is kept of a directory. Returns whether nothing is left.
fn drop_below(cache: &Path, directory: &Path) -> bool {
    let Ok(systems) = fs::read_dir(cache) else {
        return !cache.exists();
    };
    let below = directory.strip_prefix("/").unwrap_or(directory);
    let mut kept = systems.flatten().map(|system| system.path().join(below));
    kept.all(|kept| fs::remove_dir_all(&kept).is_ok() || fs::symlink_metadata(&kept).is_err())
}

pub(crate) fn applied(pool: &Arc<Pool>, identity: &Identity) -> Result<Arc<Pool>, Error> {
    let php = pool.application.php();
    let Some(parent) = php.and_then(|php| php.opcache_cache.as_ref()) else {
        return Ok(Arc::clone(pool));
    };
    dir::make_own(parent)?;
    let path = parent.join(identity.uid.to_string());
    dir::make_private(&path, identity.uid, identity.gid)?;
    let mut pool = pool.as_ref().clone();
    let Some(php) = pool.application.php_mut() else {
        return Ok(Arc::new(pool));
    };
    // A continuing pool has it already: the configuration can't set another.
    if !php
        .php_admin_value
        .iter()
        .any(|(name, _)| name == OPCACHE_FILE_CACHE)
    {
        let value = path.to_string_lossy().into_owned();
        php.php_admin_value.push((OPCACHE_FILE_CACHE.to_owned(), value));
        if let Some(paths) = &mut pool.confine.paths {
            paths.write.push(path);
        }
    }
    Ok(Arc::new(pool))
}
