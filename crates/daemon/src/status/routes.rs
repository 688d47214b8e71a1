//! The routes of a pool, from the scoreboards of its generations.

use crate::context::generation::Generation;
use crate::context::pools::Pools;
use crate::context::refused::Refused;
use crate::context::rights::Rights;
use forkyard_protocol::routes::{RouteStatus, RouteSums};
use std::path::Path;

impl Pools {
    /// Returns the routes of a pool, or of the application with this root. Owners may ask for their own.
    pub(crate) fn routes(&self, rights: Rights, name: &str) -> Result<Vec<RouteStatus>, Refused> {
        let is_meant = |generation: &&Generation| {
            let root = generation.settings.pool.application.root();
            self.shown_with(generation) == name || root == Some(Path::new(name))
        };
        let meant: Vec<&Generation> = self.generations.values().filter(is_meant).collect();
        if meant.is_empty() && self.pools_named(name).is_empty() {
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
