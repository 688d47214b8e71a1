//! The life of an instance.
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
//! Retire is possible from everywhere; of what is still being started it makes Stopping. Enable leads back from Disabling
//! and Disabled. Only Serving is given sessions. Finishing is Draining without a deadline.

/// Where an instance is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It is being started.
    Spawning,
    /// It is given sessions.
    Serving,
    /// It has had as many as it may have, or its place is needed: it stops after its last one.
    Finishing,
    /// It is to have none, and still has some.
    Disabling,
    /// It has none and is given none.
    Disabled,
    /// It does its out-of-band work.
    Working,
    /// It is to leave, and its sessions have a limited time.
    Draining,
    /// It was told to stop.
    Stopping,
}

/// What changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstanceCause {
    Up,
    Finish,
    /// Another one leaves in its place.
    Reprieve,
    Disable,
    Enable,
    Work,
    Worked,
    Retire,
    Emptied,
    Stop,
}

/// What an instance becomes.
pub(super) fn next(life: Life, cause: InstanceCause) -> Life {
    use InstanceCause::{Disable, Emptied, Enable, Finish, Reprieve, Retire, Stop, Up, Work, Worked};
    match (life, cause) {
        (_, Stop) => Life::Stopping,
        (Life::Spawning, Up) => Life::Serving,
        (Life::Spawning, Retire) => Life::Stopping,
        (Life::Spawning, Finish | Reprieve | Disable | Enable | Work | Worked | Emptied) => Life::Spawning,
        (Life::Serving, Finish) => Life::Finishing,
        (Life::Serving, Disable) => Life::Disabling,
        (Life::Serving, Work) => Life::Working,
        (Life::Serving, Retire) => Life::Draining,
        (Life::Serving, Up | Reprieve | Enable | Worked | Emptied) => Life::Serving,
        (Life::Finishing, Reprieve) => Life::Serving,
        (Life::Finishing, Emptied) => Life::Stopping,
        (Life::Finishing, Retire) => Life::Draining,
        (Life::Finishing, Up | Finish | Disable | Enable | Work | Worked) => Life::Finishing,
        (Life::Disabling, Enable) => Life::Serving,
        (Life::Disabling, Emptied) => Life::Disabled,
        (Life::Disabling, Retire) => Life::Draining,
        (Life::Disabling, Up | Finish | Reprieve | Disable | Work | Worked) => Life::Disabling,
        (Life::Disabled, Enable) => Life::Serving,
        (Life::Disabled, Retire) => Life::Draining,
        (Life::Disabled, Up | Finish | Reprieve | Disable | Work | Worked | Emptied) => Life::Disabled,
        (Life::Working, Worked) => Life::Serving,
        (Life::Working, Retire) => Life::Draining,
        (Life::Working, Up | Finish | Reprieve | Disable | Enable | Work | Emptied) => Life::Working,
        (Life::Draining, Emptied) => Life::Stopping,
        (Life::Draining, Up | Finish | Reprieve | Disable | Enable | Work | Worked | Retire) => {
            Life::Draining
        }
        (Life::Stopping, Up | Finish | Reprieve | Disable | Enable | Work | Worked | Retire | Emptied) => {
            Life::Stopping
        }
    }
}
