//! The paths of requests, in the release of the worker's generation.

use super::context::Settings;
use super::page::Page;
use fastcgi::Params;
use forkyard_config::release::{Map, map_request};
use forkyard_sys::file::resolved;

#[derive(Debug)]
pub(super) struct ReleasePaths(Option<Box<Map>>);

impl ReleasePaths {
    pub(super) fn of(settings: &Settings) -> ReleasePaths {
        ReleasePaths(settings.release.clone())
    }

    /// Maps a request's paths. A script outside of all releases stays, is counted, and logged once in a generation.
    pub(super) fn apply(&mut self, params: &mut Params, page: &Page) {
        let Some(map) = &mut self.0 else { return };
        let mapped = |map: &Map, params: &Params| map_request(map, |name| params.get(name.as_bytes()));
        let mut request = mapped(map, params);
        if request.is_outside {
            // A deployment may have made a release known since.
            let now: Vec<_> = map.links().filter_map(resolved).collect();
            map.add(now);
            request = mapped(map, params);
        }
        for (name, value) in request.changes {
            params.set(name.as_bytes(), &value);
        }
        let is_first = || page.gate().is_some_and(|gate| gate.count_outside() == 0);
        if request.is_outside && is_first() {
            let script = params.get(b"SCRIPT_FILENAME").unwrap_or_default();
            log::warn!(
                "the script {} is in no release of {}: it runs as it is there, whichever release is in service",
                String::from_utf8_lossy(script),
                map.links().next().unwrap_or(map.release()).display()
            );
        }
    }
}
