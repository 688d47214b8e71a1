//! A worker that passes many requests at a time on to a program that speaks HTTP, by an event loop.
//!
//! The worker's half that speaks FastCGI is [`Concurrent`]; here is the other half: `links` are connections to the program,
//! an `exchange` is one request on its way, and `run` connects them. Nothing waits but the loop itself.
//!
//! Where the web server speaks HTTP as well (`http_listen`), `request` reads and writes anew what it sends, and `front` passes it
//! on and tunnels what becomes of it.

mod departure;
mod exchange;
mod front;
mod links;
mod outcome;
mod request;
mod run;

use super::share::Share;
use crate::config::{Application, Pool};
use crate::worker::{Concurrent, GenerationContext, OWN, WorkerContext};
use links::{Links, Server};
use run::Gateway;
use std::time::Duration;

/// Exit code of a worker that could not begin or go on (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;
/// How long a request waits for a program that is being started, at most.
const MOST_CONNECT_TIME: Duration = Duration::from_secs(30);

/// What events are about: a connection to the program, by its number and place.
const LINK: u64 = OWN | 1 << 61;
/// A connection that came to the socket at which HTTP is spoken, and that socket.
const VISIT: u64 = OWN;
const FRONT: u64 = OWN | 1 << 60;
/// What of an event's number says which of them it is.
const KIND: u64 = OWN | 1 << 61 | 1 << 60;
/// A connection's number, which tells late events of one before it.
const MOST_SERIAL: u32 = (1 << 28) - 1;

/// Whether workers of a pool pass requests on to a program that speaks HTTP.
pub fn is_for(pool: &Pool) -> bool {
    matches!(pool.application, Application::Http(_) | Application::Program(_))
}

/// Serves until told to retire; says the exit code. `share`: where the processes of its program are found. The process is
/// what its pool says.
pub fn serve(context: GenerationContext, own: WorkerContext, share: Option<&Share>) -> i32 {
    let pool = &context.settings.pool;
    let connect_timeout = match &pool.application {
        Application::Program(program) => program.start_timeout.min(MOST_CONNECT_TIME),
        _ => MOST_CONNECT_TIME,
    };
    let server = match (&pool.application, share) {
        (Application::Http(http), _) => Server::There(http.address.clone()),
        (_, Some(share)) => Server::Started(share.clone(), own.slot as usize),
        (_, None) => {
            log::error!("worker failed to initialize: the application has no program");
            return EXIT_SOFTWARE;
        }
    };
    // A router counts itself.
    let most = pool.max_requests.filter(|_| !own.is_routed());
    let most = most.map(|most| (most, pool.max_requests_jitter));
    let links = Links::new(server, most);
    if pool.rlimit_files.is_none() {
        if let Err(error) = crate::sys::identity::raise_descriptors() {
            log::warn!("{error}");
        }
    }
    // The program and the web server have more to do for a request: taking the processor from them costs more than it gains.
    if let Err(error) = crate::sys::sched::set_batch() {
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
