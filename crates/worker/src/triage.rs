//! Judges requests before they begin ([`super::dead_work`]), for workers of both kinds.

use super::context::Settings;
use super::dead_work::{self, Dead, Facts};
use super::lanes::{self, LaneQueues};
use super::page::Page;
use super::request_start;
use fastcgi::Params;
use forkyard_base::tick::Tick;
use forkyard_config::{Abandoned, Overload, QueueTime};
use forkyard_protocol::dead_work::DeadCount;
use forkyard_scoreboard::standing::Bound;
use forkyard_sys::other_end::{self, OtherSide};
use std::os::fd::BorrowedFd;
use std::time::Duration;

const SAID_AGAIN: Duration = Duration::from_secs(60);
const REQUEST_TIMEOUT: &[u8] = b"REQUEST_TIMEOUT";

/// The web server's parameters about a request's time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// The wait until the request was taken.
    pub waited: Option<Duration>,
    pub timeout: Option<Duration>,
    /// The wait that this pool saw itself, or less.
    pub known: Duration,
    has_nonsense: bool,
}

/// Reads REQUEST_START and REQUEST_TIMEOUT, and removes them: the application gets no other parameters than before. With
/// php-fpm's configuration they stay.
pub(super) fn take_times(params: &mut Params, settings: &Settings, taken: Tick) -> Times {
    let mut times = Times::default();
    let mut names = [None; 2];
    if let Some(text) = params.get(request_start::NAME) {
        times.waited = request_start::waited(text, taken);
        times.has_nonsense |= times.waited.is_none() && !text.is_empty();
        names[0] = Some(request_start::NAME);
    }
    if let Some(text) = params.get(REQUEST_TIMEOUT) {
        times.timeout = dead_work::timeout(text);
        times.has_nonsense |= times.timeout.is_none() && !text.is_empty();
        names[1] = Some(REQUEST_TIMEOUT);
    }
    if settings.pool.load.lanes.is_some() {
        params.remove(lanes::PARAM);
    }
    if settings.pool.load.overload.abandoned != Abandoned::Count {
        for name in names.into_iter().flatten() {
            params.remove(name);
        }
    }
    times
}

/// Returns why a request must not begin, and counts it. `lanes`: for a request of a low lane; its wait is no sign of the
/// pool's load. Costs a system call only after a wait of a second.
pub(super) fn judge(
    settings: &Settings,
    (page, lanes): (&Page, Option<&LaneQueues>),
    params: &Params,
    socket: BorrowedFd<'_>,
    (waited, times): (Duration, &Times),
    now: Tick,
) -> Option<Dead> {
    let rules = &settings.pool.load.overload;
    let count = |count| {
        if let Some(counters) = page.counters() {
            counters.dead(count);
        }
    };
    if times.has_nonsense {
        count(DeadCount::Nonsense);
    }
    let mut facts = Facts {
        waited,
        timeout: times.timeout,
        ..Facts::default()
    };
    if let Some(gate) = page.gate() {
        if rules.queue_time == QueueTime::Auto {
            let standing = match lanes {
                Some(lanes) => lanes.standing(times.known, gate.usual(), now),
                None => gate.standing(waited, times.known, now),
            };
            facts.standing = standing.map(Bound::refused);
        }
        if times.timeout.is_some() {
            facts.usual = gate.usual();
        }
    }
    let is_long = match rules.queue_time {
        QueueTime::Fixed(limit) => waited > limit,
        QueueTime::Auto | QueueTime::Endless => facts.standing.is_some(),
    };
    let is_quick = waited < Overload::PATIENCE && !is_long && times.timeout.is_none();
    if is_quick || dead_work::is_job(params) || is_builtin(settings, params) {
        return None;
    }
    let is_gone = || match other_end::look(socket) {
        OtherSide::Connected => false,
        OtherSide::HalfClosed => rules.abandoned == Abandoned::SkipHalfClosed,
        OtherSide::Closed => true,
    };
    let may_be_skipped = || dead_work::may_be_skipped(params, rules);
    let dead = dead_work::judge(rules, &facts, || may_be_skipped() && is_gone())?;
    // A client that leaves without waiting for the answer would not see the refusal.
    if dead == Dead::Overload && !may_be_skipped() && is_gone() {
        return None;
    }
    match rules.abandoned {
        Abandoned::Count => {
            count(DeadCount::Ran);
            None
        }
        Abandoned::Run | Abandoned::Skip | Abandoned::SkipHalfClosed => {
            count(dead.count());
            if let (Dead::Overload, Some(gate), Some(bound)) = (dead, page.gate(), facts.standing) {
                if gate.may_say_refused(SAID_AGAIN, now) {
                    log::warn!(
                        "all requests wait for more than {:.1} s; those that do are refused \
                         (max_request_queue_time = \"auto\")",
                        bound.as_secs_f64()
                    );
                }
            }
            Some(dead)
        }
    }
}

/// Whether the worker answers the request itself.
fn is_builtin(settings: &Settings, params: &Params) -> bool {
    let pages = &settings.pool.pages;
    let mut paths = [&pages.status_path, &pages.ping_path].into_iter().flatten();
    let name = params.get(b"SCRIPT_NAME").unwrap_or_default();
    paths.any(|path| path.as_bytes() == name)
}
