//! Applies an application's `forkyard.toml` within the pool's limits.

use super::protocol::{Kind, Settings};
use forkyard_config::{Applications, DEFAULT_CONCURRENCY};
use forkyard_protocol::runtimes::Requests;
use std::num::NonZeroU32;
use std::time::Duration;

pub(crate) fn lower<T: Ord>(pool: Option<T>, own: Option<T>) -> Option<T> {
    match (pool, own) {
        (Some(pool), Some(own)) => Some(pool.min(own)),
        (pool, own) => own.or(pool),
    }
}

pub(crate) fn has_threads(kind: Kind) -> bool {
    kind.traits().requests == Requests::Threads
}

pub(crate) fn has_concurrency(kind: Kind) -> bool {
    kind.traits().serves_http()
}

pub(crate) fn is_concurrent(kind: Kind, own: &Settings) -> bool {
    has_concurrency(kind) || has_threads(kind) && own.threads.is_some_and(|threads| threads > 1)
}

/// The concurrent requests per instance, or `None` without a limit. `pool`: the setting for all applications; 0 means
/// no limit, as in `concurrency`.
pub(crate) fn at_once(kind: Kind, pool: Option<u32>, own: &Settings) -> Option<NonZeroU32> {
    let said = pool.map(NonZeroU32::new);
    if !has_concurrency(kind) {
        let threads = own
            .threads
            .filter(|_| has_threads(kind))
            .and_then(NonZeroU32::new);
        return lower(said.flatten(), Some(threads.unwrap_or(NonZeroU32::MIN)));
    }
    let has_limit = kind.traits().requests == Requests::Loop;
    let usual = NonZeroU32::new(DEFAULT_CONCURRENCY).filter(|_| has_limit);
    match own.concurrency.map(NonZeroU32::new) {
        Some(own) => lower(said.flatten(), own),
        None => said.unwrap_or(usual),
    }
}

/// Concurrent workers end only the overdue request.
pub(crate) fn request_time(applications: &Applications, own: &Settings) -> Option<Duration> {
    lower(applications.options.max_request_time, own.max_request_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_has_as_many_requests_at_once_as_it_likes_up_to_the_pools_limit() {
        for (kind, pool, own, wanted) in [
            (Kind::Asgi, None, None, Some(100)),
            (Kind::Asgi, None, Some(500), Some(500)),
            (Kind::Asgi, None, Some(0), None),
            (Kind::Asgi, Some(50), None, Some(50)),
            (Kind::Asgi, Some(50), Some(0), Some(50)),
            (Kind::Asgi, Some(50), Some(60), Some(50)),
            (Kind::Asgi, Some(50), Some(40), Some(40)),
            (Kind::Asgi, Some(0), None, None),
            (Kind::Asgi, Some(0), Some(7), Some(7)),
            (Kind::Node, None, None, None),
            (Kind::Http, Some(50), None, Some(50)),
            (Kind::Node, None, Some(3), Some(3)),
            (Kind::Wsgi, Some(50), None, Some(1)),
            (Kind::Php, None, Some(9), Some(1)),
        ] {
            let settings = Settings {
                concurrency: own,
                ..Settings::default()
            };
            let found = at_once(kind, pool, &settings).map(NonZeroU32::get);
            assert_eq!(found, wanted, "{kind:?} {pool:?} {own:?}");
        }
        for (kind, pool, threads, wanted) in [
            (Kind::Wsgi, None, 5, 5),
            (Kind::Rack, Some(3), 5, 3),
            (Kind::Rack, Some(0), 5, 5),
            (Kind::Php, None, 5, 1),
        ] {
            let own = Settings {
                threads: Some(threads),
                ..Settings::default()
            };
            let found = at_once(kind, pool, &own).map(NonZeroU32::get);
            assert_eq!(found, Some(wanted), "{kind:?} {pool:?} {threads}");
        }
    }
}
