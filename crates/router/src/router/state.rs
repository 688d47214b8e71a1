//! States of a connection.
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
//! A connection can be closed in every state. A silent one uses only a descriptor.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientState {
    Silent,
    Idle,
    Partial,
    Looking,
    Waiting,
    CheckedOut,
    /// The router writes its own answer and discards the request's rest.
    Answering,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientCause {
    /// The first input of a request.
    Said,
    /// The request's parameters are complete.
    Named,
    Found,
    CheckedOut,
    /// The instance did not start the request.
    Returned,
    /// The answer is complete, and another request may follow.
    Kept,
    /// The router answers instead.
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// `client_timeout` since entering the state.
    Client,
    Keepalive,
    Look,
    None,
}

pub(super) fn next(state: ClientState, cause: ClientCause) -> ClientState {
    use ClientCause::{CheckedOut, Found, Kept, Named, Refused, Returned, Said};
    match (state, cause) {
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
        (ClientState::Silent | ClientState::Idle, Found | CheckedOut | Returned | Kept | Refused)
        | (ClientState::Partial, Found | CheckedOut | Returned | Kept)
        | (ClientState::Looking, Said | Named | CheckedOut | Returned | Kept)
        | (ClientState::Waiting, Said | Named | Found | Returned | Kept)
        | (ClientState::CheckedOut, Said | Named | Found | CheckedOut)
        | (ClientState::Answering, Said | Named | Found | CheckedOut | Returned | Refused) => state,
    }
}

impl ClientState {
    pub(super) fn limit(self) -> Limit {
        match self {
            ClientState::Silent | ClientState::Partial | ClientState::Answering => Limit::Client,
            ClientState::Idle => Limit::Keepalive,
            ClientState::Looking => Limit::Look,
            ClientState::Waiting | ClientState::CheckedOut => Limit::None,
        }
    }

    pub(super) fn reads(self) -> bool {
        match self {
            ClientState::Silent | ClientState::Idle | ClientState::Partial | ClientState::Answering => true,
            ClientState::Looking | ClientState::Waiting | ClientState::CheckedOut => false,
        }
    }

    /// The request is cancelled if the client disconnects: no instance works on it.
    pub(super) fn waits(self) -> bool {
        matches!(self, ClientState::Looking | ClientState::Waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [ClientState; 7] = [
        ClientState::Silent,
        ClientState::Idle,
        ClientState::Partial,
        ClientState::Looking,
        ClientState::Waiting,
        ClientState::CheckedOut,
        ClientState::Answering,
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
            assert_eq!(
                next(state, ClientCause::CheckedOut) == ClientState::CheckedOut,
                matches!(state, ClientState::Waiting | ClientState::CheckedOut)
            );
            let was_lent = matches!(state, ClientState::CheckedOut | ClientState::Waiting);
            assert_eq!(
                next(state, ClientCause::Returned) == ClientState::Waiting,
                was_lent
            );
            // Every state that reads input has a limit.
            assert!(!state.reads() || state.limit() != Limit::None, "{state:?}");
        }
    }
}
