//! What a worker's end counts as.

use super::event::{Exit, Told};
use forkyard_protocol::tally::Cause;

const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// The signals that the master ends workers by.
const OURS: [i32; 3] = [SIGTERM, SIGKILL, SIGQUIT];

/// Why a worker ended that was told, or was not.
pub fn cause(told: Option<Told>, exit: Exit) -> (Cause, Option<i32>) {
    match (told, exit) {
        (None, Exit::Code(0)) => (Cause::Finished, None),
        (None, Exit::Unknown) => (Cause::Unknown, None),
        (Some(Told::Retire), Exit::Code(0) | Exit::Unknown) => (Cause::Retired, None),
        (Some(Told::Terminate | Told::Kill), Exit::Code(_) | Exit::Unknown) => (Cause::Terminated, None),
        (Some(Told::Terminate | Told::Kill), Exit::Signal { signal, .. }) if OURS.contains(&signal) => {
            (Cause::Terminated, None)
        }
        (None | Some(Told::Retire), Exit::Code(code)) => (Cause::Exit, Some(code)),
        (_, Exit::Signal { signal, .. }) => (Cause::Signal, Some(signal)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGSEGV: i32 = 11;

    #[test]
    fn a_worker_s_end_has_a_cause() {
        let signal = |signal: i32| Exit::Signal { signal, core: false };
        for (told, exit, expected) in [
            (None, Exit::Code(0), (Cause::Finished, None)),
            (None, Exit::Code(255), (Cause::Exit, Some(255))),
            (None, Exit::Unknown, (Cause::Unknown, None)),
            (None, signal(SIGTERM), (Cause::Signal, Some(15))),
            (Some(Told::Retire), Exit::Code(0), (Cause::Retired, None)),
            (Some(Told::Retire), Exit::Code(1), (Cause::Exit, Some(1))),
            (Some(Told::Retire), signal(SIGSEGV), (Cause::Signal, Some(11))),
            (Some(Told::Terminate), signal(SIGTERM), (Cause::Terminated, None)),
            (Some(Told::Kill), signal(SIGKILL), (Cause::Terminated, None)),
            (Some(Told::Kill), signal(SIGSEGV), (Cause::Signal, Some(11))),
        ] {
            assert_eq!(cause(told, exit), expected, "{told:?} {exit:?}");
        }
    }
}
