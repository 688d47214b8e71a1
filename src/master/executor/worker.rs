//! A worker, as the master knows it.

use super::output::Lines;
use super::slow;
use crate::master::event::{GenerationId, Told};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A worker, from the decision to make it until it is reaped.
#[derive(Debug)]
pub(super) struct WorkerProcess {
    pub(super) generation: GenerationId,
    pub(super) slot: u32,
    pub(super) pid: Option<i32>,
    /// A byte, or closing it, tells the worker to finish.
    pub(super) retire: Option<OwnedFd>,
    pub(super) output: Vec<(Lines, &'static str)>,
    pub(super) begun: crate::tick::Tick,
    pub(super) up: bool,
    /// How it was told to go, and when.
    pub(super) told: Option<(Told, crate::tick::Tick)>,
    /// It is not this process' child: readable when it has ended.
    pub(super) foreign: Option<OwnedFd>,
    /// When its process started, once that was asked for.
    pub(super) start_time: std::cell::Cell<Option<u64>>,
    /// A line of its output is not complete.
    pub(super) unfinished: bool,
    /// The router's end of its channel, if a router gives it its connections.
    pub(super) channel: Option<OwnedFd>,
    /// How what it is busy with can be seen; `None`: it can't.
    pub(super) traceable: Option<Rc<slow::Traceable>>,
    /// Over which it is asked that, if it is.
    pub(super) questions: Option<OwnedFd>,
}
