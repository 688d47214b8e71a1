//! A connection's states.
//!
//! ```text
//!            Said          Named          Found          Lent
//!   Silent ───────▶ Partial ─────▶ Looking ─────▶ Waiting ─────▶ Lent
//!            ┌─────────▲             ▲             ▲             │ │
//!            │ Said    └─────────────┤             └── Returned ─┘ │
//!           Idle ────────── Named ───┘                             │
//!            ▲ └───────────────────────────── Kept ────────────────┤
//!            │ Kept                                                │
//!        Answering ◀── Refused: from Partial, Looking, Waiting, Lent
//! ```
//!
//! Over leads to Gone, from everywhere. A silent connection costs a descriptor and nothing else.

/// Where a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was ever said on it.
    Silent,
    /// It is kept, between two requests.
    Idle,
    /// A part of a request has come, or something that is no request.
    Partial,
    /// Its application's root is being looked at.
    Looking,
    /// It waits for an instance.
    Waiting,
    /// An instance has it.
    Lent,
    /// The router answers itself: the answer is written, what is left of the request is read.
    Answering,
    /// It is closed.
    Gone,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Something has come that is not all of a request's parameters.
    Said,
    /// A request's parameters are there.
    Named,
    /// Its application is known; an instance is asked for.
    Found,
    /// An instance has been given it.
    Lent,
    /// The instance has not begun: another one is asked for.
    Returned,
    /// The answer is complete, and another request may come.
    Kept,
    /// No instance answers.
    Refused,
    /// The client, the instance, or its time is gone.
    Over,
}

/// What bounds a connection's stay in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// `client_timeout`, from the moment it got there.
    Client,
    /// `keepalive_timeout`.
    Keepalive,
    /// How long a look may take.
    Look,
    /// Somebody else's: the book's, or the instance's.
    None,
}

/// What a connection becomes.
pub(super) fn next(state: State, cause: Cause) -> State {
    use Cause::{Found, Kept, Lent, Named, Over, Refused, Returned, Said};
    match (state, cause) {
        (State::Gone, _) | (_, Over) => State::Gone,
        (State::Silent | State::Idle | State::Partial, Said) => State::Partial,
        (State::Silent | State::Idle | State::Partial, Named) => State::Looking,
        (State::Partial | State::Looking | State::Waiting | State::Lent, Refused) => State::Answering,
        (State::Looking, Found) => State::Waiting,
        (State::Waiting, Lent) => State::Lent,
        (State::Lent, Returned) => State::Waiting,
        (State::Lent | State::Answering, Kept) => State::Idle,
        // What comes too late, or has no meaning there.
        (State::Silent | State::Idle, Found | Lent | Returned | Kept | Refused)
        | (State::Partial, Found | Lent | Returned | Kept)
        | (State::Looking, Said | Named | Lent | Returned | Kept)
        | (State::Waiting, Said | Named | Found | Returned | Kept)
        | (State::Lent, Said | Named | Found | Lent)
        | (State::Answering, Said | Named | Found | Lent | Returned | Refused) => state,
    }
}

impl State {
    /// What bounds it.
    pub(super) fn limit(self) -> Limit {
        match self {
            State::Silent | State::Partial | State::Answering => Limit::Client,
            State::Idle => Limit::Keepalive,
            State::Looking => Limit::Look,
            State::Waiting | State::Lent | State::Gone => Limit::None,
        }
    }

    /// What comes is for the router to look at.
    pub(super) fn reads(self) -> bool {
        match self {
            State::Silent | State::Idle | State::Partial | State::Answering => true,
            State::Looking | State::Waiting | State::Lent | State::Gone => false,
        }
    }

    /// The client waits, and no instance works on its request: if the client leaves, the request ends.
    pub(super) fn waits(self) -> bool {
        matches!(self, State::Looking | State::Waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 8] = [
        State::Silent,
        State::Idle,
        State::Partial,
        State::Looking,
        State::Waiting,
        State::Lent,
        State::Answering,
        State::Gone,
    ];

    #[test]
    fn a_request_goes_its_way() {
        let way = [
            (Cause::Said, State::Partial),
            (Cause::Named, State::Looking),
            (Cause::Found, State::Waiting),
            (Cause::Lent, State::Lent),
            (Cause::Returned, State::Waiting),
            (Cause::Lent, State::Lent),
            (Cause::Kept, State::Idle),
            (Cause::Named, State::Looking),
            (Cause::Refused, State::Answering),
            (Cause::Kept, State::Idle),
            (Cause::Over, State::Gone),
            (Cause::Said, State::Gone),
        ];
        let mut state = State::Silent;
        for (cause, expected) in way {
            state = next(state, cause);
            assert_eq!(state, expected, "{cause:?}");
        }
    }

    #[test]
    fn a_connection_has_one_owner() {
        for state in STATES {
            assert!(!(state.reads() && state.waits()), "{state:?}");
            assert_eq!(next(state, Cause::Over), State::Gone);
            // Only from an instance's hands can it come back, and only who waits is given to one.
            assert_eq!(
                next(state, Cause::Lent) == State::Lent,
                matches!(state, State::Waiting | State::Lent)
            );
            let was_lent = matches!(state, State::Lent | State::Waiting);
            assert_eq!(next(state, Cause::Returned) == State::Waiting, was_lent);
            // Whatever waits for the client is bounded.
            assert!(!state.reads() || state.limit() != Limit::None, "{state:?}");
        }
    }
}
