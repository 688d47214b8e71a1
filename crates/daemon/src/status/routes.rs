//! The routes of a pool, from the scoreboards of its generations.

use crate::context::generation::Generation;
use crate::context::pools::Pools;
use crate::context::refused::Refused;
use crate::context::rights::Rights;
use forkyard_config::Config;
use forkyard_protocol::routes::{RouteStatus, RouteSums};
use std::path::Path;

impl Pools {
    /// Returns the routes of a pool, or of the application in this directory. Owners may ask for their own.
    pub(crate) fn routes(
        &self,
        config: &Config,
        rights: Rights,
        name: &str,
    ) -> Result<Vec<RouteStatus>, Refused> {
        let path = Path::new(name);
        let pool = self.pool_named_by(config, name);
        let pool = pool.map_or(name, |pool| pool.name.as_str());
        let site = self.sites.at(path).and_then(|id| self.sites.get(id));
        let sites = self.sites.iter().map(|(_, site)| &site.served);
        let served = sites.filter(|served| site.is_some_and(|site| site.served.link == served.link));
        let roots: Vec<&Path> = served
            .map(|served| served.release.as_path())
            .chain([path])
            .collect();
        let is_meant = |generation: &&Generation| {
            let root = generation.settings.pool.application.root();
            self.shown_with(generation) == pool || root.is_some_and(|root| roots.contains(&root))
        };
        let meant: Vec<&Generation> = self.generations.values().filter(is_meant).collect();
        if meant.is_empty() && self.pools_named(pool).is_empty() {
            return Err(Refused::NoPool(name.to_owned()));
        }
        let own = meant
            .into_iter()
            .filter(|generation| generation.is_open_to(rights));
        let own: Vec<&Generation> = own.collect();
        if own.is_empty() && rights != Rights::All {
            return Err(Refused::NotYours("pool"));
        }
        let mut sums = RouteSums::default();
        own.iter().for_each(|generation| generation.add_routes(&mut sums));
        Ok(sums.answer())
    }
}

impl Generation {
    fn is_open_to(&self, rights: Rights) -> bool {
        match rights {
            Rights::All => true,
            Rights::Own(uid) => (self.settings.identity.as_ref()).is_some_and(|identity| identity.uid == uid),
        }
    }

    /// The route of the request that the worker in a slot has.
    pub(crate) fn present_route(&self, slot: u32) -> Option<String> {
        let resources = self.resources.as_ref()?;
        resources.board.counters(slot as usize)?.routes().present()
    }

    fn add_routes(&self, sums: &mut RouteSums) {
        let Some(resources) = &self.resources else { return };
        let board = &resources.board;
        for counters in (0..board.slots()).filter_map(|index| board.counters(index)) {
            let (rows, other) = counters.routes().read();
            sums.add(rows, &other);
        }
    }
}
