//! The work on pools and generations beside their processes: queues, shared requests, rest, changes of their sources.

mod closing;
pub(crate) mod lanes;
pub(crate) mod provenance;
pub(crate) mod saturation;
pub(crate) mod settings;
pub(crate) mod snapshot;
pub(crate) mod totals;
pub(crate) mod trial;
pub(crate) mod turns;
