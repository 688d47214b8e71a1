//! Resolves a php-fpm configuration: has its directives resolved as forkyard's keys, and adds settings without a key.

use super::Options;
use super::journal::Failed;
use super::parse::Written;
use super::settings::{self, is_ours, octal};
use super::validate::Context;
use super::values::Values;
use forkyard_config::php_fpm::{self, FpmPool, FpmSetting};
use forkyard_config::{Abandoned, Config, LogTarget, Pool};
use std::path::Path;
use std::sync::Arc;

const TITLE: &str = "php-fpm";

#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) config: Config,
    pub(super) global: Vec<FpmSetting>,
    pub(super) pools: Vec<Vec<FpmSetting>>,
}

pub(super) fn resolve(written: &Written, path: &str, context: &mut Context<'_>) -> Result<Resolved, Failed> {
    let global = settings::global(&written.global, context.options);
    let mut pools = Vec::new();
    for pool in &written.pools {
        pools.push(settings::pool(pool, context)?);
    }
    let said = written.pools.iter().zip(&pools);
    let said = said.map(|(pool, settings)| FpmPool {
        name: &pool.name,
        location: &pool.location,
        settings,
    });
    let (config, messages) = php_fpm::resolve(
        Path::new(path),
        &global,
        &said.collect::<Vec<_>>(),
        context.machine,
        context.options.line_end(),
    );
    for (level, text) in messages {
        context.journal.say(level, text);
    }
    let mut config = config.ok_or(Failed)?;
    if context.options.log_to_stderr && !config.global.daemonize {
        config.global.error_log = LogTarget::Stderr;
    }
    for (pool, text) in config.pools.iter_mut().zip(&written.pools) {
        complete(Arc::make_mut(pool), &text.values, context.options);
    }
    Ok(Resolved {
        config,
        global,
        pools,
    })
}

fn complete(pool: &mut Pool, values: &Values, options: &Options) {
    TITLE.clone_into(&mut pool.title);
    pool.load.overload.abandoned = Abandoned::Count;
    if let Some(mode) = values.full("listen.mode") {
        let sockets = [Some(&mut pool.listen), pool.pages.status_listen.as_deref_mut()];
        for socket in sockets.into_iter().flatten() {
            socket.mode = octal(mode);
        }
    }
    if let Some(php) = pool.application.php_mut() {
        let defines = options.defines.iter();
        php.defines = defines.filter(|(name, _)| !is_ours(name)).cloned().collect();
        php.php_admin_value.retain(|(name, _)| !is_ours(name));
        php.no_php_ini = options.no_php_ini;
        php.scan_dir.clone_from(&options.scan_dir);
        php.extended_info = options.extended_info;
        php.binary.clone_from(&options.executable);
    }
}
