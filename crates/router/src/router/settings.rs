//! The pool's settings, and their combination with an application's stricter ones.

use super::answer::{ErrorPage, Problem};
use super::app_index::Refused;
use crate::inspector::own_settings::{at_once, is_concurrent, lower};
use crate::inspector::pool_name;
use crate::inspector::protocol::{Kind, Settings};
use fastcgi::Limits;
use forkyard_base::tick::Tick;
use forkyard_config::{Applications, Pool};
use forkyard_core::applications::{Options, RestartMethod};
use forkyard_core::spawn::report::{ErrorId, Report};
use forkyard_protocol::runtimes::Requests;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

/// Extra time before the pool abandons a start. The master normally does so first, after `start_timeout`, and reports
/// why.
const REPORT_TIME: Duration = Duration::from_secs(5);
/// Extra time for a worker to end an overdue request itself.
const WORKER_TIME: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct PoolSettings {
    pub pool: Pool,
    pub applications: Applications,
    /// All applications run as one user, so connections are kept.
    pub one_user: bool,
}

impl PoolSettings {
    /// `None`: the pool has no applications.
    pub(super) fn new(pool: Pool, one_user: bool) -> Option<PoolSettings> {
        Some(PoolSettings {
            applications: *pool.applications.clone()?,
            pool,
            one_user,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.pool.name
    }

    /// The pool name of an application's instances.
    pub(super) fn pool_of(&self, root: &str) -> Option<String> {
        pool_name(&self.pool, &self.applications, Path::new(root)).ok()
    }

    pub(super) fn root_parameter(&self) -> &[u8] {
        self.applications.root_parameter.as_bytes()
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            params_bytes: self.pool.serving.limits.params_bytes,
            params_count: self.pool.serving.limits.params_count,
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            options: self.applications.options,
            concurrency: self.applications.concurrency,
            user_switching: self.applications.user_switching,
        }
    }

    /// The answer to requests for a directory that is not run.
    pub(super) fn problem_of(&self, refused: Option<&Refused>, now: Tick) -> Problem {
        let Some(Refused { refusal, why }) = refused else {
            return Problem::NotFound(ErrorPage::default());
        };
        let id = ErrorId(refusal.id);
        let report = || Report::refused(id, self.name(), &refusal.root, refusal.owner, why, now);
        let page = self.pool.pages.friendly_error_pages.then(|| report().page());
        let error = Some(id.to_string());
        match refusal.is_no_application {
            true => Problem::NotFound(ErrorPage { error, page }),
            false => Problem::Failed(ErrorPage { error, page }),
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    pub options: Options,
    /// Concurrent requests per instance; 0 means no limit, `None` the runtime's default.
    pub concurrency: Option<u32>,
    pub user_switching: bool,
}

impl Bounds {
    pub(super) fn unknown(&self) -> Options {
        Options {
            start_timeout: self.options.start_timeout.saturating_add(REPORT_TIME),
            ..self.options
        }
    }

    pub(super) fn options_of(&self, owner: u32, kind: Kind, own: &Settings) -> Options {
        Options {
            user: if self.user_switching { owner } else { 0 },
            ..self.options(kind, own)
        }
    }

    fn options(&self, kind: Kind, own: &Settings) -> Options {
        let pool = self.options;
        let positive = |own: Option<u32>| own.and_then(NonZeroU32::new);
        let method = own.rolling_restarts.map(|rolling| match rolling {
            true => RestartMethod::Rolling,
            false => RestartMethod::Blocking,
        });
        let instances = positive(own.instances);
        let request_time = lower(pool.max_request_time, own.max_request_time);
        Options {
            max_per_app: lower(pool.max_per_app, lower(positive(own.max_per_app), instances)),
            min_instances: own
                .min_instances
                .map_or(pool.min_instances, |own| own.min(pool.min_instances)),
            max_requests: lower(pool.max_requests, positive(own.max_requests)),
            max_idle_time: lower(pool.max_idle_time, own.max_idle_time),
            // A concurrent worker ends only the overdue request. The router kills it if it fails to do so.
            max_request_time: request_time.map(|most| match is_concurrent(kind, own) {
                true => most.saturating_add(WORKER_TIME),
                false => most,
            }),
            max_request_queue_size: lower(pool.max_request_queue_size, positive(own.max_request_queue_size)),
            memory_limit: lower(pool.memory_limit, own.memory_limit),
            start_timeout: lower(Some(pool.start_timeout), own.start_timeout)
                .unwrap_or_default()
                .saturating_add(REPORT_TIME),
            concurrency: at_once(kind, self.concurrency, own),
            spread: instances,
            restart_method: method.unwrap_or(pool.restart_method),
            shares_program: kind.traits().requests == Requests::Forwarded,
            ..pool
        }
    }
}

pub(super) fn limits(own: &Settings) -> Settings {
    Settings {
        runtime: None,
        entry: None,
        start_command: None,
        env: BTreeMap::new(),
        handshake: None,
        preload: None,
        app_log: None,
        ..own.clone()
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
        let pool = Bounds {
            options: pool,
            concurrency: None,
            user_switching: true,
        };
        let app_pool = Options {
            start_timeout: pool.options.start_timeout + REPORT_TIME,
            ..pool.options
        };
        assert_eq!(pool.options(Kind::Php, &Settings::default()), app_pool);
        assert_eq!(pool.unknown(), app_pool);
        let less = pool.options(Kind::Php, &own(Some(2), Some(0), Some(500)));
        assert_eq!((less.max_per_app, less.min_instances), (NonZeroU32::new(2), 0));
        assert_eq!(less.max_requests, NonZeroU32::new(500));
        assert_eq!(less.restart_method, RestartMethod::Rolling);
        let more = pool.options(Kind::Php, &own(Some(9), Some(7), Some(0)));
        assert_eq!(
            (more.max_per_app, more.min_instances),
            (pool.options.max_per_app, 1)
        );
        assert_eq!(more.max_requests, None);
    }

    #[test]
    fn times_and_sizes_can_be_lowered_and_not_raised() {
        let seconds = Duration::from_secs;
        let bounds = Bounds {
            options: Options {
                max_idle_time: Some(seconds(60)),
                max_request_time: Some(seconds(30)),
                max_per_app: NonZeroU32::new(4),
                memory_limit: Some(100),
                start_timeout: seconds(90),
                ..Options::default()
            },
            concurrency: None,
            user_switching: true,
        };
        let own = |time: u64, bytes, number| Settings {
            max_idle_time: Some(seconds(time)),
            max_request_time: Some(seconds(time)),
            start_timeout: Some(seconds(time)),
            memory_limit: Some(bytes),
            max_request_queue_size: Some(number),
            instances: Some(number),
            ..Settings::default()
        };
        for (kind, own, time, idle, request, bytes, instances) in [
            (Kind::Wsgi, own(7, 70, 2), 7, 7, 7, 70, 2),
            (Kind::Asgi, own(7, 70, 2), 7, 7, 12, 70, 2),
            (Kind::Wsgi, own(700, 700, 700), 90, 60, 30, 100, 4),
        ] {
            let options = bounds.options(kind, &own);
            assert_eq!(options.start_timeout, seconds(time) + REPORT_TIME);
            assert_eq!(options.max_idle_time, Some(seconds(idle)));
            assert_eq!(options.max_request_time, Some(seconds(request)));
            assert_eq!(options.memory_limit, Some(bytes));
            assert_eq!(options.max_per_app, NonZeroU32::new(instances));
            let queue = own.max_request_queue_size.map(|own| own.min(100));
            assert_eq!(options.max_request_queue_size.map(NonZeroU32::get), queue);
        }
    }
}
