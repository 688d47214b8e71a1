//! Events of the application pool.

use super::options::{Options, RestartMethod};
use super::restart::RestartFiles;
use forkyard_base::tick::Tick;
use std::num::NonZeroU32;
use std::sync::Arc;

/// One process of an application, from the start decision until it is reaped. Numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

/// One request for an instance. The caller assigns ascending numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Where to find the report of a failed start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorId(pub u64);

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Request an instance. Ends in [`super::action::Action::CheckOut`] or [`super::action::Action::Refuse`] unless
    /// canceled.
    Get(Get),
    /// The waiting client is gone. Ignored if the session does not wait.
    Cancel(SessionId),
    /// A session ended. Ignored if it has no instance, so closing twice is harmless.
    Close(SessionId, Return),
    /// An instance from [`super::action::Action::Spawn`] is up.
    Spawned(InstanceId),
    /// An instance could not be started; no process is left.
    SpawnFailed(InstanceId, ErrorId),
    /// An instance's process exited.
    Exited(InstanceId),
    /// Restart an application. Ignored if unknown.
    Restart(Arc<str>, RestartMethod),
    /// The state of an application's restart files. Ignored if unknown.
    Seen(Arc<str>, RestartFiles),
    /// New settings of an application. Ignored if unknown.
    Changed(Arc<str>, Options),
    /// A new total of instances.
    SetMax(NonZeroU32),
    /// A new number of places reserved for applications without instances.
    SetReserve(u32),
    /// Add an application before its first request.
    Add {
        /// Its name; a duplicate is an error.
        name: Arc<str>,
        options: Options,
    },
    /// Move an application into this group, added if unknown.
    Join {
        name: Arc<str>,
        group: Arc<str>,
        options: Options,
    },
    /// Take an application out of its group. Ignored if unknown.
    Leave(Arc<str>),
    /// Remove an application; its name is free at once. Idle instances stop now, others after their sessions. Ignored if
    /// unknown.
    Remove(Arc<str>),
    /// An instance asks to run out-of-band work when it has no request.
    WorkWanted(InstanceId),
    /// Work from [`super::action::Action::Work`] ended.
    Worked(InstanceId),
    /// An adopted instance reports a session that began before the adoption.
    Found(InstanceId, SessionId),
    /// Whether an instance is unable to start on its sessions.
    HeldUp(InstanceId, bool),
    /// An instance's memory in bytes.
    Measured(InstanceId, u64),
    /// Give an instance no more sessions, without stopping it. Answered with [`super::action::Action::Disabled`].
    Disable(InstanceId),
    /// Give a disabled instance sessions again.
    Enable(InstanceId),
    /// Stop an instance after its sessions.
    Detach(InstanceId),
    /// Instances adopted from an earlier router, and the first unused instance number. Must be the first event.
    Adopt(Vec<Adopted>, InstanceId),
    /// The time from `next_deadline` has come.
    Deadline,
}

/// An instance adopted from an earlier router.
#[derive(Debug, Clone, PartialEq)]
pub struct Adopted {
    pub id: InstanceId,
    /// Its application, added if unknown.
    pub application: Arc<str>,
    pub options: Options,
    /// A session that stands for its current requests. The caller closes it when they end.
    pub session: SessionId,
}

/// A request for an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Get {
    /// Its number, higher than all earlier ones.
    pub session: SessionId,
    pub target: Target,
    /// How long it waits.
    pub wait: Wait,
    /// The state of the restart files, if they were checked.
    pub restart_files: Option<RestartFiles>,
    /// Whether it needs the instance for itself.
    pub alone: bool,
}

/// The target of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// An application, added if unknown, with its new settings.
    Application(Arc<str>, Options),
    Known(Arc<str>),
    /// A free instance of a group. The random number selects the first application to try.
    Group(Arc<str>, u64),
}

/// How long a request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    None,
    Until(Tick),
    Endless,
}

/// The condition of a returned instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    Ok,
    /// Unhealthy or unknown: it is replaced.
    Failed,
}
