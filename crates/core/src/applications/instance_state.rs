//! The state of an instance.
//!
//! ```text
//!            Up           Finish, Reprieve         Emptied
//! Spawning ────▶ Serving ◀─────────▶ Finishing ─────────────▶ Stopping ──▶ (Exited)
//!                 ▲ ▲ │ Retire                     Emptied       ▲
//!          Worked │ │ ├──────────▶ Draining ──────────────────────┤
//!                 │ │ │ Disable                  Emptied          │
//!                 │ └─┼──────────▶ Disabling ────────▶ Disabled   │
//!                 │   │ Work                                      │
//!                 └───┴──────────▶ Working          Stop, from anywhere
//! ```
//!
//! Retire is possible from every state; it leads from Spawning to Stopping. Enable leads back from Disabling and Disabled.
//! Only Serving gets sessions. Finishing is Draining without a deadline.

/// The state of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InstanceState {
    #[default]
    Spawning,
    Serving,
    /// It stops after its last session: it reached its limit, or its place is needed.
    Finishing,
    /// It gets no sessions and still has some.
    Disabling,
    /// It has no sessions and gets none.
    Disabled,
    /// It does out-of-band work.
    Working,
    /// It leaves; its sessions have limited time.
    Draining,
    /// It was asked to stop.
    Stopping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstanceCause {
    Up,
    Finish,
    /// Another instance leaves instead.
    Reprieve,
    Disable,
    Enable,
    Work,
    Worked,
    Retire,
    Emptied,
    Stop,
}

pub(super) fn next(state: InstanceState, cause: InstanceCause) -> InstanceState {
    use InstanceCause::{Disable, Emptied, Enable, Finish, Reprieve, Retire, Stop, Up, Work, Worked};
    match (state, cause) {
        (_, Stop) => InstanceState::Stopping,
        (InstanceState::Spawning, Up) => InstanceState::Serving,
        (InstanceState::Spawning, Retire) => InstanceState::Stopping,
        (InstanceState::Spawning, Finish | Reprieve | Disable | Enable | Work | Worked | Emptied) => {
            InstanceState::Spawning
        }
        (InstanceState::Serving, Finish) => InstanceState::Finishing,
        (InstanceState::Serving, Disable) => InstanceState::Disabling,
        (InstanceState::Serving, Work) => InstanceState::Working,
        (InstanceState::Serving, Retire) => InstanceState::Draining,
        (InstanceState::Serving, Up | Reprieve | Enable | Worked | Emptied) => InstanceState::Serving,
        (InstanceState::Finishing, Reprieve) => InstanceState::Serving,
        (InstanceState::Finishing, Emptied) => InstanceState::Stopping,
        (InstanceState::Finishing, Retire) => InstanceState::Draining,
        (InstanceState::Finishing, Up | Finish | Disable | Enable | Work | Worked) => {
            InstanceState::Finishing
        }
        (InstanceState::Disabling, Enable) => InstanceState::Serving,
        (InstanceState::Disabling, Emptied) => InstanceState::Disabled,
        (InstanceState::Disabling, Retire) => InstanceState::Draining,
        (InstanceState::Disabling, Up | Finish | Reprieve | Disable | Work | Worked) => {
            InstanceState::Disabling
        }
        (InstanceState::Disabled, Enable) => InstanceState::Serving,
        (InstanceState::Disabled, Retire) => InstanceState::Draining,
        (InstanceState::Disabled, Up | Finish | Reprieve | Disable | Work | Worked | Emptied) => {
            InstanceState::Disabled
        }
        (InstanceState::Working, Worked) => InstanceState::Serving,
        (InstanceState::Working, Retire) => InstanceState::Draining,
        (InstanceState::Working, Up | Finish | Reprieve | Disable | Enable | Work | Emptied) => {
            InstanceState::Working
        }
        (InstanceState::Draining, Emptied) => InstanceState::Stopping,
        (InstanceState::Draining, Up | Finish | Reprieve | Disable | Enable | Work | Worked | Retire) => {
            InstanceState::Draining
        }
        (
            InstanceState::Stopping,
            Up | Finish | Reprieve | Disable | Enable | Work | Worked | Retire | Emptied,
        ) => InstanceState::Stopping,
    }
}
