//! What happens to a worker's own child processes when it exits.

use super::event::StopRequest;
use forkyard_protocol::counters::ExitCause;

/// Whether they end, too: after a limit, an overdue exit, or a pool's stop. Otherwise they stay, as with php-fpm,
/// gunicorn and Puma. `said`: the worker's own exit cause. `pool_stops`: the pool or daemon stops.
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
