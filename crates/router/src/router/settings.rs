//! An application's settings in the book: the pool's, within which its own may be stricter.

use crate::applications::{Options, RestartMethod};
use crate::inspector::look::Settings;
use std::num::NonZeroU32;
use std::time::Duration;

/// The master gives a start up when it has lasted for `start_timeout`, and says why, with the report's id. Only what it does not
/// notice is the book's to give up.
const REPORT_TIME: Duration = Duration::from_secs(5);

/// What holds for an application that says this of itself.
pub(super) fn options(pool: &Options, own: Option<&Settings>) -> Options {
    let pool = &Options {
        start_timeout: pool.start_timeout.saturating_add(REPORT_TIME),
        ..*pool
    };
    let Some(own) = own else { return *pool };
    let lower = |pool: Option<NonZeroU32>, own: Option<u32>| match (pool, own.and_then(NonZeroU32::new)) {
        (Some(pool), Some(own)) => Some(pool.min(own)),
        (pool, own) => own.or(pool),
    };
    let method = own.rolling_restarts.map(|rolling| match rolling {
        true => RestartMethod::Rolling,
        false => RestartMethod::Blocking,
    });
    Options {
        max_per_app: lower(pool.max_per_app, own.max_per_app),
        min_instances: own
            .min_instances
            .map_or(pool.min_instances, |own| own.min(pool.min_instances)),
        max_requests: lower(pool.max_requests, own.max_requests),
        restart_method: method.unwrap_or(pool.restart_method),
        ..*pool
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_may_ask_for_less_and_not_for_more() {
        let pool = Options {
            max_per_app: NonZeroU32::new(4),
            min_instances: 1,
            ..Options::default()
        };
        let own = |max_per_app, min_instances, max_requests| Settings {
            max_per_app,
            min_instances,
            max_requests,
            rolling_restarts: Some(true),
            ..Settings::default()
        };
        let book = Options {
            start_timeout: pool.start_timeout + REPORT_TIME,
            ..pool
        };
        assert_eq!(options(&pool, None), book);
        let less = options(&pool, Some(&own(Some(2), Some(0), Some(500))));
        assert_eq!((less.max_per_app, less.min_instances), (NonZeroU32::new(2), 0));
        assert_eq!(less.max_requests, NonZeroU32::new(500));
        assert_eq!(less.restart_method, RestartMethod::Rolling);
        let more = options(&pool, Some(&own(Some(9), Some(7), Some(0))));
        assert_eq!((more.max_per_app, more.min_instances), (pool.max_per_app, 1));
        assert_eq!(more.max_requests, None);
    }
}
