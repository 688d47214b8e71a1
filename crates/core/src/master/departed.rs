//! What becomes of the processes that a worker has started when the worker ends.

use super::event::StopRequest;
use forkyard_protocol::counters::ExitCause;

/// Whether they end with it: it was ended because of a limit, or because it did not go when it was told to, or its pool stops. A
/// worker that is replaced, or that nobody needs any more, leaves them, as php-fpm's, gunicorn's and Puma's do. `said`: why the worker
/// has ended, in its own words. `pool_stops`: the pool is closed, or the daemon ends.
pub fn end_with_worker(told: Option<StopRequest>, said: Option<ExitCause>, pool_stops: bool) -> bool {
    let by_master = match told {
        Some(StopRequest::Terminate | StopRequest::Kill) => true,
        None | Some(StopRequest::Retire) => false,
    };
    let by_itself = match said {
        Some(ExitCause::Memory | ExitCause::Terminated) => true,
        None
        | Some(
            ExitCause::Retired
            | ExitCause::Finished
            | ExitCause::Exit
            | ExitCause::Signal
            | ExitCause::Unknown
            | ExitCause::LoopRequests
            | ExitCause::LoopMemory
            | ExitCause::ScriptEnded
            | ExitCause::ScriptFailed
            | ExitCause::ClientLeft
            | ExitCause::NotPutBack,
        ) => false,
    };
    pool_stops || by_master || by_itself
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: [Option<StopRequest>; 4] = [
        None,
        Some(StopRequest::Retire),
        Some(StopRequest::Terminate),
        Some(StopRequest::Kill),
    ];
    const SAID: [Option<ExitCause>; 5] = [
        None,
        Some(ExitCause::Memory),
        Some(ExitCause::Terminated),
        Some(ExitCause::LoopRequests),
        Some(ExitCause::ScriptEnded),
    ];

    #[test]
    fn limits_and_the_end_of_the_pool_take_them_along_and_nothing_else_does() {
        for told in TOLD {
            for said in SAID {
                assert!(end_with_worker(told, said, true), "{told:?} {said:?}");
                let is_limit = matches!(told, Some(StopRequest::Terminate | StopRequest::Kill))
                    || matches!(said, Some(ExitCause::Memory | ExitCause::Terminated));
                assert_eq!(end_with_worker(told, said, false), is_limit, "{told:?} {said:?}");
            }
        }
    }
}
