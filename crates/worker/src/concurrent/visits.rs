//! Requests that the event loop serves itself over HTTP; the worker counts, shows and limits them like its own.

use super::super::request::description;
use super::Concurrent;
use super::client::AnswerPhase;
use super::leave::Life;
use super::state::WorkerState;
use fastcgi::Params;
use forkyard_base::tick::Tick;
use forkyard_sys::clock;
use forkyard_sys::socket::accept;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

impl Concurrent {
    /// The listening HTTP socket, if there is one.
    pub fn http(&self) -> Option<RawFd> {
        self.lock().sources.http.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Lends that socket.
    pub fn with_http<T>(&self, use_it: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let state = self.lock();
        state.sources.http.as_ref().map(|http| use_it(http.as_fd()))
    }

    /// Accepts a connection there from an allowed client.
    pub fn accept_http(&mut self) -> Option<OwnedFd> {
        let client = match self.with_http(accept)? {
            Ok(client) => client?,
            Err(error) => {
                log::error!("can't accept a connection: {error}");
                return None;
            }
        };
        let WorkerState {
            accepting,
            page,
            settings,
            ..
        } = &mut *self.lock();
        match accepting
            .gauge
            .admit(page, settings.pool.http_listen.as_ref()?, client.as_fd())
        {
            Some(why) => {
                log::error!("{why}");
                None
            }
            None => Some(client),
        }
    }

    /// Registers a request that the event loop serves itself and returns its id. End it with [`Concurrent::send`] (the
    /// last piece is the head of a CGI answer) or [`Concurrent::abandon`](super::Several::abandon).
    /// [`Event::Expired`](super::Event::Expired) may come.
    pub fn begin_visit(&mut self, params: Params) -> u64 {
        let mut state = self.lock();
        let token = state.begin_visit(params, clock::now());
        let is_watched = state.departure.life != Life::Done;
        drop(state);
        if let Some(watch) = self.watch.as_mut().filter(|_| is_watched) {
            watch.wake(&self.shared);
        }
        token
    }

    /// Removes a request's time limit, because its connection is long-lived.
    pub fn is_endless(&mut self, token: u64) {
        self.with(token, |state, index| {
            let now = clock::now();
            if let Some(request) = &mut state.clients[index].request {
                request.answer = AnswerPhase::Endless;
                request.expires = None;
            }
            state.was_sent(index, now);
            state.show(now);
        });
    }

    /// Reports that part of an answer was sent, or that it has started.
    pub fn was_sent(&mut self, token: u64) {
        self.with(token, |state, index| {
            if let Some(request) = &mut state.clients[index].request {
                request.begin_answer();
            }
            state.was_sent(index, clock::now());
        });
    }

    /// The client timeout.
    pub fn client_timeout(&self) -> Duration {
        self.lock().settings.pool.serving.client_timeout
    }

    /// Whether the worker accepts no new requests.
    pub fn is_leaving(&self) -> bool {
        self.lock().is_leaving()
    }
}

impl WorkerState {
    fn begin_visit(&mut self, params: Params, now: Tick) -> u64 {
        let index = self.clients.take();
        let mut recorder = self.recorder();
        if let Some(recorder) = &mut recorder {
            recorder.begin(now);
            recorder.describe(&description(&params), &params, None);
        }
        self.begin_request(index, recorder, Some(Box::new(params)), now);
        self.clients.token(index)
    }
}
