//! Causes of worker exits for the statistics.

use super::event::{Ended, StopRequest};
use forkyard_protocol::counters::ExitCause;

const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// Signals that the master sends.
const OURS: [i32; 3] = [SIGTERM, SIGKILL, SIGQUIT];

/// Returns why a worker exited. `said`: its own word, if it exited normally.
pub fn cause(told: Option<StopRequest>, exit: Ended, said: Option<ExitCause>) -> (ExitCause, Option<i32>) {
    match (told, exit) {
        (None, Ended::Code(0)) => (said.unwrap_or(ExitCause::Finished), None),
        (None, Ended::Unknown) => (ExitCause::Unknown, None),
        (Some(StopRequest::Retire), Ended::Code(0) | Ended::Unknown) => (ExitCause::Retired, None),
        (Some(StopRequest::Terminate | StopRequest::Kill), Ended::Code(_) | Ended::Unknown) => {
            (ExitCause::Terminated, None)
        }
        (Some(StopRequest::Terminate | StopRequest::Kill), Ended::Signal { number, .. })
            if OURS.contains(&number) =>
        {
            (ExitCause::Terminated, None)
        }
        (None | Some(StopRequest::Retire), Ended::Code(code)) => (ExitCause::Exit, Some(code)),
        (_, Ended::Signal { number, .. }) => (ExitCause::Signal, Some(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGSEGV: i32 = 11;

    #[test]
    fn a_worker_s_word_counts_where_it_ended_by_itself_and_well() {
        let said = Some(ExitCause::ScriptFailed);
        let ended = |told, exit| cause(told, exit, said).0;
        assert_eq!(ended(None, Ended::Code(0)), ExitCause::ScriptFailed);
        assert_eq!(ended(None, Ended::Code(1)), ExitCause::Exit);
        assert_eq!(
            ended(Some(StopRequest::Retire), Ended::Code(0)),
            ExitCause::Retired
        );
    }

    #[test]
    fn a_worker_s_end_has_a_cause() {
        let signal = |signal: i32| Ended::killed(signal);
        for (told, exit, expected) in [
            (None, Ended::Code(0), (ExitCause::Finished, None)),
            (None, Ended::Code(255), (ExitCause::Exit, Some(255))),
            (None, Ended::Unknown, (ExitCause::Unknown, None)),
            (None, signal(SIGTERM), (ExitCause::Signal, Some(15))),
            (
                Some(StopRequest::Retire),
                Ended::Code(0),
                (ExitCause::Retired, None),
            ),
            (
                Some(StopRequest::Retire),
                Ended::Code(1),
                (ExitCause::Exit, Some(1)),
            ),
            (
                Some(StopRequest::Retire),
                signal(SIGSEGV),
                (ExitCause::Signal, Some(11)),
            ),
            (
                Some(StopRequest::Terminate),
                signal(SIGTERM),
                (ExitCause::Terminated, None),
            ),
            (
                Some(StopRequest::Kill),
                signal(SIGKILL),
                (ExitCause::Terminated, None),
            ),
            (
                Some(StopRequest::Kill),
                signal(SIGSEGV),
                (ExitCause::Signal, Some(11)),
            ),
        ] {
            assert_eq!(cause(told, exit, None), expected, "{told:?} {exit:?}");
        }
    }
}
