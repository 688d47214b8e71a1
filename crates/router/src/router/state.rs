//! A connection's states.
//!
//! ```text
//!            Said          Named          Found       CheckedOut
//!   Silent ───────▶ Partial ─────▶ Looking ─────▶ Waiting ─────▶ CheckedOut
//!            ┌─────────▲             ▲             ▲             │ │
//!            │ Said    └─────────────┤             └── Returned ─┘ │
//!           Idle ────────── Named ───┘                             │
//!            ▲ └───────────────────────────── Kept ────────────────┤
//!            │ Kept                                                │
//!        Answering ◀── Refused: from Partial, Looking, Waiting, CheckedOut
//! ```
//!
//! Over leads to Gone, from everywhere. A silent connection costs a descriptor and nothing else.

/// Where a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientState {
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
    CheckedOut,
    /// The router answers itself: the answer is written, what is left of the request is read.
    Answering,
    /// It is closed.
    Gone,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientCause {
    /// Something has come that is not all of a request's parameters.
    Said,
    /// A request's parameters are there.
    Named,
    /// Its application is known; an instance is asked for.
    Found,
    /// An instance has been given it.
    CheckedOut,
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
    /// The pool or the instance has the connection.
    None,
}

/// What a connection becomes.
pub(super) fn next(state: ClientState, cause: ClientCause) -> ClientState {
    use ClientCause::{CheckedOut, Found, Kept, Named, Over, Refused, Returned, Said};
    match (state, cause) {
        (ClientState::Gone, _) | (_, Over) => ClientState::Gone,
        (ClientState::Silent | ClientState::Idle | ClientState::Partial, Said) => ClientState::Partial,
        (ClientState::Silent | ClientState::Idle | ClientState::Partial, Named) => ClientState::Looking,
        (
            ClientState::Partial | ClientState::Looking | ClientState::Waiting | ClientState::CheckedOut,
            Refused,
        ) => ClientState::Answering,
        (ClientState::Looking, Found) => ClientState::Waiting,
        (ClientState::Waiting, CheckedOut) => ClientState::CheckedOut,
        (ClientState::CheckedOut, Returned) => ClientState::Waiting,
        (ClientState::CheckedOut | ClientState::Answering, Kept) => ClientState::Idle,
        // What comes too late, or has no meaning there.
        (ClientState::Silent | ClientState::Idle, Found | CheckedOut | Returned | Kept | Refused)
        | (ClientState::Partial, Found | CheckedOut | Returned | Kept)
        | (ClientState::Looking, Said | Named | CheckedOut | Returned | Kept)
        | (ClientState::Waiting, Said | Named | Found | Returned | Kept)
        | (ClientState::CheckedOut, Said | Named | Found | CheckedOut)
        | (ClientState::Answering, Said | Named | Found | CheckedOut | Returned | Refused) => state,
    }
}

impl ClientState {
    /// What bounds it.
    pub(super) fn limit(self) -> Limit {
        match self {
            ClientState::Silent | ClientState::Partial | ClientState::Answering => Limit::Client,
            ClientState::Idle => Limit::Keepalive,
            ClientState::Looking => Limit::Look,
            ClientState::Waiting | ClientState::CheckedOut | ClientState::Gone => Limit::None,
        }
    }

    /// What comes is for the router to look at.
    pub(super) fn reads(self) -> bool {
        match self {
            ClientState::Silent | ClientState::Idle | ClientState::Partial | ClientState::Answering => true,
            ClientState::Looking | ClientState::Waiting | ClientState::CheckedOut | ClientState::Gone => {
                false
            }
        }
    }

    /// The client waits, and no instance works on its request: if the client leaves, the request ends.
    pub(super) fn waits(self) -> bool {
        matches!(self, ClientState::Looking | ClientState::Waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [ClientState; 8] = [
        ClientState::Silent,
        ClientState::Idle,
        ClientState::Partial,
        ClientState::Looking,
        ClientState::Waiting,
        ClientState::CheckedOut,
        ClientState::Answering,
        ClientState::Gone,
    ];

    #[test]
    fn a_request_goes_its_way() {
        let way = [
            (ClientCause::Said, ClientState::Partial),
            (ClientCause::Named, ClientState::Looking),
            (ClientCause::Found, ClientState::Waiting),
            (ClientCause::CheckedOut, ClientState::CheckedOut),
            (ClientCause::Returned, ClientState::Waiting),
            (ClientCause::CheckedOut, ClientState::CheckedOut),
            (ClientCause::Kept, ClientState::Idle),
            (ClientCause::Named, ClientState::Looking),
            (ClientCause::Refused, ClientState::Answering),
            (ClientCause::Kept, ClientState::Idle),
            (ClientCause::Over, ClientState::Gone),
            (ClientCause::Said, ClientState::Gone),
        ];
        let mut state = ClientState::Silent;
        for (cause, expected) in way {
            state = next(state, cause);
            assert_eq!(state, expected, "{cause:?}");
        }
    }

    #[test]
    fn a_connection_has_one_owner() {
        for state in STATES {
            assert!(!(state.reads() && state.waits()), "{state:?}");
            assert_eq!(next(state, ClientCause::Over), ClientState::Gone);
            // It can come back only from an instance, and only one that waits is given to an instance.
            assert_eq!(
                next(state, ClientCause::CheckedOut) == ClientState::CheckedOut,
                matches!(state, ClientState::Waiting | ClientState::CheckedOut)
            );
            let was_lent = matches!(state, ClientState::CheckedOut | ClientState::Waiting);
            assert_eq!(
                next(state, ClientCause::Returned) == ClientState::Waiting,
                was_lent
            );
            // Whatever waits for the client is bounded.
            assert!(!state.reads() || state.limit() != Limit::None, "{state:?}");
        }
    }
}
