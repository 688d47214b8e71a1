//! Reads a php-fpm configuration for conversion.

use super::validate::Context;
use super::{Journal, Machine, Options, read, resolve};
use forkyard_config::Config;
use forkyard_config::php_fpm::FpmSetting;

pub(super) struct Surveyed {
    pub(super) comments: Vec<String>,
    pub(super) said: Vec<(FpmSetting, Vec<String>)>,
}

pub(super) struct Survey {
    pub(super) config: Config,
    pub(super) global: Surveyed,
    /// Pools in the order of `config`.
    pub(super) pools: Vec<Surveyed>,
}

/// Reads a configuration for conversion. Its users need not exist here.
pub(super) fn survey(options: &Options, machine: &dyn Machine) -> (Option<Survey>, Journal) {
    let mut journal = Journal::new();
    let survey = read(options, machine, &mut journal, true).and_then(|written| {
        let mut context = Context::new(options, machine, &mut journal);
        let resolved = resolve::resolve(&written, &options.path(), &mut context)?;
        let section = |location, said: Vec<FpmSetting>| {
            let comments = |said: &FpmSetting| written.comments(said.location.as_ref());
            let said = said.into_iter().map(|said| (said.clone(), comments(&said)));
            Surveyed {
                comments: written.comments(location),
                said: said.collect(),
            }
        };
        let pools = written.pools.iter().zip(resolved.pools);
        Ok(Survey {
            config: resolved.config,
            global: section(written.opened.as_ref(), resolved.global),
            pools: pools
                .map(|(pool, said)| section(Some(&pool.location), said))
                .collect(),
        })
    });
    (survey.ok(), journal)
}
