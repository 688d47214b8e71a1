//! A worker's state behind a lock, and what its threads and the event loop's thread do alike.

use super::super::out_of_band::WorkError;
use super::super::promotion::Promotion;
use super::state::WorkerState;
use super::{Sent, When};
use forkyard_sys::clock;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The shared part of a worker with several requests.
#[derive(Debug)]
pub struct Several(Mutex<WorkerState>);

pub(super) type Locked<'t> = MutexGuard<'t, WorkerState>;

impl Several {
    pub(super) fn new(state: WorkerState) -> Several {
        Several(Mutex::new(state))
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        // A panic aborts the process, so the lock is never poisoned.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Acts on a request, unless it has ended.
    pub(super) fn with(&self, token: u64, act: impl FnOnce(&mut WorkerState, usize)) {
        let mut state = self.lock();
        if let Some(index) = state.clients.find(token) {
            act(&mut state, index);
        }
    }

    /// Sends text to the web server's error log.
    pub fn send_error(&self, token: u64, bytes: &[u8]) -> Sent {
        let mut state = self.lock();
        match state.clients.find(token) {
            Some(index) => state.put_error(index, bytes, clock::now()),
            None => Sent::Gone,
        }
    }

    /// Gives up a request without a complete answer.
    pub fn abandon(&self, token: u64) {
        self.with(token, |state, index| state.break_off(index, clock::now()));
    }

    /// Makes the worker exit after its current requests.
    pub fn retire(&self) {
        self.lock().leave(clock::now());
    }

    /// Requests out-of-band work.
    pub fn want_work(&self) {
        self.lock().ask_for_work();
    }

    /// Ends out-of-band work; an error is logged.
    pub fn out_of_band_done(&self, outcome: Result<(), WorkError>) {
        self.lock().out_of_band_done(outcome);
    }

    /// Whether the process should create a preloader. It has no request then.
    pub fn must_promote(&self) -> bool {
        self.lock().departure.promotion.is_some()
    }

    /// The descriptors for the preloader.
    pub fn take_promotion(&self) -> Option<Promotion> {
        self.lock().departure.promotion.take()
    }

    /// The exit code, after the last request.
    pub fn exit_code(&self) -> i32 {
        self.lock().departure.exit_code
    }
}

impl WorkerState {
    pub(super) fn send_to(&mut self, token: u64, bytes: &[u8], when: When) -> Sent {
        match self.clients.find(token) {
            Some(index) => self.send(index, bytes, when, clock::now()),
            None => Sent::Gone,
        }
    }
}
