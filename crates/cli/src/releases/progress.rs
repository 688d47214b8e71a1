//! Shows the progress of a deployment in a terminal.

use super::super::control::{CommandOutcome, Daemon, answer};
use super::super::output;
use super::ask_one;
use super::display::{shown, since};
use forkyard_protocol::control::{Answer, Request};
use forkyard_protocol::release::{PoolReleases, UnderWay};
use forkyard_sys::signal::Interrupts;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A newer deployment does not replace one with this percentage of the requests or more.
const KEPT_FROM: u8 = 50;

/// Whether the deployment under way must end before `release` can be deployed.
pub(super) fn is_first(under_way: &UnderWay, release: &Path) -> bool {
    under_way.percent >= KEPT_FROM && under_way.release != release
}

pub(super) fn in_words(under_way: &UnderWay) -> String {
    let UnderWay {
        old, new, compared, ..
    } = under_way;
    let release = shown(&under_way.release);
    let since = since(under_way.since);
    match under_way.percent {
        0 => format!("{release} is tried since {since}"),
        percent => format!(
            "{release} gets {percent} % of the requests, since {since}: {} of {} failed, {} of {} of the release before; \
             {compared} compared in this step",
            new.failures, new.requests, old.failures, old.requests,
        ),
    }
}

/// Requests a deployment, and shows its progress until the answer comes. An interrupting signal takes the deployment back.
pub(super) fn answer_shown(
    daemon: &Daemon,
    pool: &PoolReleases,
    release: &Path,
    gradual: Option<bool>,
    interrupts: &Interrupts,
) -> Result<Answer, CommandOutcome> {
    let deploy = Request::Deploy {
        pool: pool.pool.clone(),
        release: release.to_owned(),
        gradual,
    };
    let take_back = Request::Rollback {
        pool: pool.pool.clone(),
        release: Some(release.to_owned()),
    };
    let is_terminal = std::io::stderr().is_terminal();
    thread::scope(|scope| {
        let (tell, heard) = mpsc::channel();
        let deploy = &deploy;
        scope.spawn(move || tell.send(answer(daemon, deploy)));
        let (mut has_drawn, mut is_taken_back) = (false, false);
        let mut next = Instant::now() + INTERVAL;
        loop {
            let answered = match heard.recv_timeout(LOOK_AGAIN) {
                Ok(answered) => answered,
                Err(RecvTimeoutError::Disconnected) => answer(daemon, deploy),
                Err(RecvTimeoutError::Timeout) => {
                    if interrupts.has_come() && !is_taken_back {
                        // The daemon refuses until the deployment has begun.
                        is_taken_back = matches!(answer(daemon, &take_back), Ok(Answer::Done { .. }));
                    } else if is_terminal && Instant::now() >= next {
                        next = Instant::now() + INTERVAL;
                        let now = ask_one(daemon, &pool.pool).ok();
                        if let Some(under_way) = now.and_then(|now| now.under_way) {
                            output::draw(&in_words(&under_way));
                            has_drawn = true;
                        }
                    }
                    continue;
                }
            };
            if has_drawn {
                output::draw("");
            }
            return answered;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_protocol::release::Answered;

    #[test]
    fn a_deployment_is_replaced_until_it_has_half_of_the_requests() {
        let under_way = |percent| UnderWay {
            release: "/r/1".into(),
            percent,
            compared: 3,
            waiting: None,
            since: 0,
            old: Answered::default(),
            new: Answered::default(),
        };
        let two = Path::new("/r/2");
        assert!(!is_first(&under_way(10), two) && is_first(&under_way(50), two));
        assert!(!is_first(&under_way(50), Path::new("/r/1")));
        assert!(in_words(&under_way(0)).starts_with("/r/1 is tried since "));
    }
}
