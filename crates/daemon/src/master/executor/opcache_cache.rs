//! The directory of a pool's compiled scripts: its user's, below the configured one.

use forkyard_config::{OPCACHE_FILE_CACHE, Pool};
use forkyard_sys::identity::Identity;
use forkyard_sys::{Error, dir};
use std::sync::Arc;

pub(super) fn applied(pool: &Arc<Pool>, identity: &Identity) -> Result<Arc<Pool>, Error> {
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
