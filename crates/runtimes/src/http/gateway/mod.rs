//! A worker that passes many requests at a time to an HTTP program, with an event loop.
//!
//! [`Concurrent`] is the FastCGI side; web servers may also speak HTTP (`http_listen`). `passage` decides what happens
//! with one request of either side: `upstream` finds its process, `upload` and `download` hold its bytes. `event_loop`
//! carries out a passage's decisions, with the connections in `links`.

mod accept;
mod download;
mod event_loop;
mod links;
mod passage;
mod request;
mod stream;
#[cfg(test)]
mod tests;
mod upload;
mod upstream;

use super::share::Share;
use event_loop::Gateway;
use forkyard_config::{Application, Pool, Requests};
use forkyard_worker::{Concurrent, EXIT_SOFTWARE, GenerationContext, OWN, WorkerContext};
use links::{Links, Server};
use std::time::Duration;

/// The longest wait of a request for a program that is starting.
const MOST_CONNECT_TIME: Duration = Duration::from_secs(30);

const LINK: u64 = OWN | 1 << 61;
const VISIT: u64 = OWN;
const FRONT: u64 = OWN | 1 << 60;
const KIND: u64 = OWN | 1 << 61 | 1 << 60;
/// Distinguishes late events of an earlier connection.
const MOST_SERIAL: u32 = (1 << 28) - 1;

/// Whether a pool's workers pass requests to an HTTP program.
pub fn is_for(pool: &Pool) -> bool {
    pool.application.traits().requests == Requests::Forwarded
}

/// Serves until told to exit; returns the exit code. `share`: addresses of the program's processes. Process settings
/// must be applied.
pub fn serve(context: GenerationContext, own: WorkerContext, share: Option<&Share>) -> i32 {
    let pool = &context.settings.pool;
    let start = pool.application.start_times();
    let connect_timeout = start.map_or(MOST_CONNECT_TIME, |it| it.start_timeout.min(MOST_CONNECT_TIME));
    let server = match (&pool.application, share) {
        (Application::Http(http), _) => Server::There(http.address.clone()),
        (_, Some(share)) => Server::Started(share.clone(), own.slot as usize),
        (_, None) => {
            log::error!("worker failed to initialize: the application has no program");
            return EXIT_SOFTWARE;
        }
    };
    let most = pool.retirement.max_requests.filter(|_| !own.is_routed());
    let most = most.map(|most| (most, pool.retirement.max_requests_jitter));
    let links = Links::new(server, most);
    if pool.setup.rlimit_files.is_none() {
        if let Err(error) = forkyard_sys::fd::raise_descriptor_limit() {
            log::warn!("{error}");
        }
    }
    // The program and web server do more work per request and should not be preempted.
    if let Err(error) = forkyard_sys::sched::set_batch() {
        log::debug!("{error}");
    }
    match Concurrent::begin(context, own) {
        Ok(worker) => Gateway::new(worker, links, connect_timeout).run(),
        Err(error) => {
            log::error!("worker failed to initialize: {error}");
            EXIT_SOFTWARE
        }
    }
}
