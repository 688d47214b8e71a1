//! The progress of a deployment, in a terminal.

use super::super::control::{CommandOutcome, Daemon, answer};
use super::super::output;
use super::ask_one;
use forkyard_protocol::control::{Answer, Request};
use forkyard_protocol::release::{PoolReleases, UnderWay};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

const INTERVAL: Duration = Duration::from_secs(1);
/// A deployment with so many percent of the requests is not replaced by a newer one.
const KEPT_FROM: u8 = 50;

/// Whether another release's deployment goes on before that of `release` begins.
pub(super) fn is_first(under_way: &UnderWay, release: &Path) -> bool {
    under_way.percent >= KEPT_FROM && under_way.release != release
}

pub(super) fn in_words(under_way: &UnderWay) -> String {
    let release = under_way.release.display();
    match under_way.percent {
        0 => format!("{release} is tried"),
        percent => format!(
            "{release} gets {percent} % of the requests; {} compared",
            under_way.compared
        ),
    }
}

/// Sends a request, and shows the deployment in the terminal until the answer comes.
pub(super) fn answer_shown(
    daemon: &Daemon,
    pool: &PoolReleases,
    request: &Request,
) -> Result<Answer, CommandOutcome> {
    if !std::io::stderr().is_terminal() {
        return answer(daemon, request);
    }
    thread::scope(|scope| {
        let (tell, heard) = mpsc::channel();
        scope.spawn(move || tell.send(answer(daemon, request)));
        let mut has_drawn = false;
        loop {
            let answered = match heard.recv_timeout(INTERVAL) {
                Ok(answered) => answered,
                Err(RecvTimeoutError::Disconnected) => answer(daemon, request),
                Err(RecvTimeoutError::Timeout) => {
                    let now = ask_one(daemon, &pool.pool).ok();
                    if let Some(under_way) = now.and_then(|now| now.under_way) {
                        output::draw(&in_words(&under_way));
                        has_drawn = true;
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

    #[test]
    fn a_deployment_is_replaced_until_it_has_half_of_the_requests() {
        let under_way = |percent| UnderWay {
            release: "/r/1".into(),
            percent,
            compared: 3,
            waiting: None,
        };
        let two = Path::new("/r/2");
        assert!(!is_first(&under_way(10), two) && is_first(&under_way(50), two));
        assert!(!is_first(&under_way(50), Path::new("/r/1")));
        assert_eq!(in_words(&under_way(0)), "/r/1 is tried");
        assert_eq!(
            in_words(&under_way(10)),
            "/r/1 gets 10 % of the requests; 3 compared"
        );
    }
}
