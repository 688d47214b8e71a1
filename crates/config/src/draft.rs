//! A configuration's tables as written. [`settings`](super::settings) has the keys of each.

use super::error::Location;
pub(super) use super::resolve::application::ApplicationDraft;
pub(super) use super::settings::{
    ApplicationsDraft, CgiDraft, FastCgiDraft, GlobalDraft, HttpDraft, JobQueueDraft, JobScheduleDraft,
    JobsDraft, PhpDraft, PoolDraft, WrappedDraft,
};
use super::units::Routing;
use forkyard_protocol::runtimes::Kind;

#[derive(Debug)]
pub(super) struct JobsText {
    pub(super) location: Location,
    pub(super) draft: JobsDraft,
    pub(super) queues: Vec<(String, Location, JobQueueDraft)>,
    pub(super) schedules: Vec<(String, Location, JobScheduleDraft)>,
}

#[derive(Debug)]
pub(super) struct PoolText {
    pub(super) name: String,
    pub(super) location: Location,
    pub(super) draft: PoolDraft,
    pub(super) application: ApplicationDraft,
    pub(super) applications: Box<ApplicationsDraft>,
    pub(super) applications_location: Option<Location>,
}

impl PoolText {
    pub(super) fn runtime_location(&self) -> &Location {
        let runtime = self.draft.runtime.written();
        runtime.map_or(&self.location, |runtime| &runtime.location)
    }

    pub(super) fn runtime(&self) -> Option<Kind> {
        Kind::named(self.draft.runtime.text()?)
    }

    pub(super) fn is_routed(&self) -> bool {
        self.draft
            .routing
            .written()
            .is_some_and(|written| written.value == Routing::Application)
    }
}
