//! What can happen to the pool.

use super::options::{Options, RestartMethod};
use super::restart::RestartFiles;
use crate::tick::Tick;
use std::num::NonZeroU32;
use std::sync::Arc;

/// One process of an application, from the decision to start it until it is reaped. Never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(pub u64);

/// One request for an instance, while it waits and while it holds one. Given by who asks; each is higher than all before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// The one that asks: all that it holds ends together. A lease holder may wait for and hold several instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseHolder(pub u64);

/// Where the report of a failed start is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorId(pub u64);

/// What the pool is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An instance is asked for. Ends in [`super::action::Action::CheckOut`] or [`super::action::Action::Refuse`], unless it
    /// is taken back with `Cancel` before.
    Get(Get),
    /// The client that waits is gone. Nothing if it does not wait.
    Cancel(SessionId),
    /// A session is over. Nothing if it has no instance: closing twice is harmless.
    Close(SessionId, Return),
    /// A lease holder is gone: all it waits for is taken back, all it holds is closed.
    LeaseHolderGone(LeaseHolder, Return),
    /// An instance asked for with [`super::action::Action::Spawn`] is up.
    Spawned(InstanceId),
    /// It could not be started, and no process is left of it.
    SpawnFailed(InstanceId, ErrorId),
    /// An instance's process is gone, wanted or not.
    Exited(InstanceId),
    /// Restart an application; unknown: nothing.
    Restart(Arc<str>, RestartMethod),
    /// What was seen of an application's restart files; unknown application: nothing.
    Seen(Arc<str>, RestartFiles),
    /// An application's settings are these from now on; unknown application: nothing.
    Changed(Arc<str>, Options),
    /// The pool's total is another one.
    SetMax(NonZeroU32),
    /// So many places are for applications that have no instance.
    SetReserve(u32),
    /// Add an application before a request asks for it, with its group if it has one.
    Add {
        /// Its name. One that is there already is an error.
        name: Arc<str>,
        /// The group from which any member may be asked for.
        group: Option<Arc<str>>,
        /// Its settings.
        options: Options,
    },
    /// An application is in this group from now on, and in no other; it is begun if it is unknown, and stays until it is removed or
    /// leaves.
    Join {
        /// Its name.
        name: Arc<str>,
        /// The group from which any member may be asked for.
        group: Arc<str>,
        /// Its settings from now on.
        options: Options,
    },
    /// An application is in no group any more, and is there only as long as requests ask for it. Unknown: nothing.
    Leave(Arc<str>),
    /// Take an application out. Its name may be used again at once. Unknown: nothing.
    Remove(Arc<str>, Removal),
    /// Take out all applications of a group.
    RemoveGroup(Arc<str>, Removal),
    /// An instance asks for out-of-band work: to be called once while it has no request.
    WorkWanted(InstanceId),
    /// Its out-of-band work, asked for with [`super::action::Action::Work`], is done or has failed.
    Worked(InstanceId),
    /// An instance that was taken over has this session, which an earlier pool has given out.
    Found(InstanceId, SessionId),
    /// An instance does not get round to what it has been given, or does again (`false`).
    HeldUp(InstanceId, bool),
    /// An instance uses so much memory, in bytes.
    Measured(InstanceId, u64),
    /// Give an instance no more sessions, but let it live. Answered with [`super::action::Action::Disabled`].
    Disable(InstanceId),
    /// Give it sessions again.
    Enable(InstanceId),
    /// Take an instance out of service; it is stopped after its sessions.
    Detach(InstanceId),
    /// Instances of an earlier pool that still run, and the first number that no instance has had. Before anything is asked for.
    Adopt(Vec<Adopted>, InstanceId),
    /// Stop everything; ends in [`super::action::Action::Finished`].
    Shutdown(Removal),
    /// The deadline that `next_deadline` named has come.
    Deadline,
}

/// An instance that another pool began.
#[derive(Debug, Clone, PartialEq)]
pub struct Adopted {
    /// Its number.
    pub id: InstanceId,
    /// Its application, added if it is unknown.
    pub application: Arc<str>,
    /// The application's settings from now on.
    pub options: Options,
    /// A session that it has from the beginning, for whatever it may still be busy with: to be closed when that is over. A
    /// session as for [`Get`].
    pub session: SessionId,
}

/// A request for an instance.
#[derive(Debug, Clone, PartialEq)]
pub struct Get {
    /// Its number, higher than all before.
    pub session: SessionId,
    /// Of what.
    pub target: Target,
    /// How long.
    pub wait: Wait,
    /// The request that it was checked out for, if that is known.
    pub lease_holder: Option<LeaseHolder>,
    /// What was just seen of the application's restart files, if they were looked at.
    pub restart_files: Option<RestartFiles>,
    /// It has its instance for itself, however many sessions one may have.
    pub alone: bool,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// An instance of an application, which is begun if it is unknown. The settings are its settings from now on.
    Application(Arc<str>, Options),
    /// An instance of an application that is there.
    Known(Arc<str>),
    /// A free instance of any application of a group. The number, drawn by who asks, chooses which is tried first.
    Group(Arc<str>, u64),
}

/// How long a request waits for an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    None,
    /// Until then.
    Until(Tick),
    /// Until there is one.
    Endless,
}

/// How an instance comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// It is well.
    Ok,
    /// It is not healthy, or that is not known: it is replaced.
    Failed,
}

/// How something is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Idle instances stop now, others after their sessions; after the time, if one is given, as with `Immediate`.
    Graceful(Option<Tick>),
    /// Sessions are lost.
    Immediate,
}
