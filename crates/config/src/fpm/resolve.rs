//! Resolves a php-fpm configuration: reads its directives into the drafts of forkyard's keys, resolves these, and adds
//! settings without a key.

use super::Options;
use super::journal::Failed;
use super::parse::Written;
use super::settings::{self, PRELOADER, REQUEST_SETTINGS, octal};
use super::validate::Context;
use super::values::Values;
use super::variables;
use crate::draft::GlobalDraft;
use crate::flat_keys::FlatKeys;
use crate::overrides::Overrides;
use crate::report::{Diagnostics, Report};
use crate::resolve::{pool_text, whole};
use crate::{Abandoned, Config, FpmSetting, Location, LogTarget, Pool};
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
    let mut diagnostics = Diagnostics::php_fpm(context.options.line_end());
    let file = Location::of_file(Path::new(path));
    let global = settings::global(&written.global, context.options);
    let mut keys = FlatKeys::of(&global, &file);
    let overrides = Overrides::of(context.machine);
    let of_global = overrides.for_table(None);
    keys.override_by(of_global.filter(|one| variables::is_own(one, true)));
    let draft = GlobalDraft::read(&mut keys, &mut Report::global(&mut diagnostics));
    let (mut pools, mut texts) = (Vec::new(), Vec::new());
    for pool in &written.pools {
        let said = settings::pool(pool, context)?;
        let mut flat_keys = FlatKeys::of(&said, &pool.location);
        let of_pool = overrides.for_table(Some(&pool.name));
        flat_keys.override_by(of_pool.filter(|one| variables::is_own(one, false)));
        let mut report = Report::pool(&mut diagnostics, &pool.name);
        texts.push(pool_text(
            pool.name.clone(),
            pool.location.clone(),
            flat_keys,
            &mut report,
        ));
        pools.push(said);
    }
    let config = whole(
        &draft,
        &texts,
        None,
        Path::new(path),
        context.machine,
        &mut diagnostics,
    );
    overrides.finish(&mut diagnostics);
    for (level, text) in diagnostics.said() {
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
    pool.overload.abandoned = Abandoned::Count;
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

/// Whether a php.ini name is one of forkyard's settings.
pub(crate) fn is_ours(name: &str) -> bool {
    name == REQUEST_SETTINGS || name == PRELOADER
}
