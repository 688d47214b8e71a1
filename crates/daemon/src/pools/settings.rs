//! The settings of a pool's next generation, with its user and what is on the disk.

use crate::context::apply_error::PoolFault;
use crate::context::generation::Generation;
use crate::context::opcache_cache;
use crate::context::services::Services;
use forkyard_config::{Global, Pool, Workers};
use forkyard_sys::identity::{self, Identity};
use forkyard_sys::{Error, rights, title};
use forkyard_worker::{RestartMark, Settings};
use nix::errno::Errno;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
pub(crate) type Identities<'p> = HashMap<Option<(&'p str, Option<&'p str>)>, Identity>;

impl Services {
    /// `identities`: the known users of other pools; a look-up opens dozens of files.
    pub(crate) fn settings<'p>(
        &self,
        pool: &'p Arc<Pool>,
        global: &Global,
        identities: &mut Identities<'p>,
    ) -> Result<Settings, PoolFault> {
        let user = pool.account.user.as_deref().filter(|_| identity::is_root());
        let wanted = user.map(|user| (user, pool.account.group.as_deref()));
        let identity = match identities.entry(wanted) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(match wanted {
                Some((user, group)) => Identity::look_up(user, group)
                    .and_then(not_reserved)
                    .map_err(PoolFault::Identity)?,
                None => Identity::current(),
            }),
        };
        let mut programs = crate::context::required_programs::programs(pool, &self.libexec).into_iter();
        if let Some(missing) = programs.find(|program| !program.exists()) {
            return Err(PoolFault::Program(missing));
        }
        let has_handler = self.handlers.contains_key(&pool.name);
        if pool.application.traits().workers == Workers::Daemon && !has_handler {
            return Err(PoolFault::Handler);
        }
        let pool = opcache_cache::applied(&self.in_force(pool), identity).map_err(PoolFault::OpcacheCache)?;
        let mut settings = Settings {
            identity: Some(identity.clone()),
            ..self.bare_settings(pool, global)
        };
        settings.restart_mark = settings.restart_file().and_then(|path| RestartMark::of(&path));
        Ok(settings)
    }

    /// The settings that need no look at the system.
    pub(crate) fn bare_settings(&self, pool: Arc<Pool>, global: &Global) -> Settings {
        Settings {
            slots: pool.pm.max_children(),
            pool,
            identity: None,
            started: Generation::started_now(),
            descriptor_limit: self.descriptor_limit,
            log_limit: global.log_limit,
            log_level: global.log_level,
            refork_at: None,
            process_name: title::name(),
            restart_mark: None,
            release: None,
            records_faults: !self.speaks_as_fpm,
            turn: None,
        }
    }
}

/// A pool's user must not be the zygotes' user: its scripts could signal them.
fn not_reserved(identity: Identity) -> Result<Identity, Error> {
    match identity.uid == rights::SOURCE_OF_CHILDREN {
        true => Err(Error::new("setuid", identity.uid.to_string(), Errno::EPERM)),
        false => Ok(identity),
    }
}
