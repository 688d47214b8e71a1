//! Runs the role that the document names.

use super::start::{DOCUMENT, FIRST, HelperStart, Role, WorkerStart};
use forkyard_host::logs::Log;
use forkyard_reporter;
use forkyard_router::{inspector, router};
use forkyard_runtimes::http::{Share, gateway};
use forkyard_sys::{Error, clock, fd, heap, memfile, signal, title};
use forkyard_web::WebStart;
use forkyard_worker::{GenerationContext, WorkerContext};
use nix::errno::Errno;
use std::os::fd::{AsFd, OwnedFd, RawFd};

/// The exit code of a helper that fails to start (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;
/// The largest document, in bytes.
const MOST_BYTES: usize = 16 << 20;

/// Runs a helper and returns its exit code. Call it with one thread, before anything opens a file.
pub fn run() -> i32 {
    signal::ignore_pipe();
    match begin() {
        Ok((start, descriptors)) => {
            Log::install().say_from(start.log_level);
            title::set(&start.title);
            // Reads the local zone now: later the environment, which names it, may be a pool's.
            clock::utc_offset_seconds();
            become_role(start, descriptors)
        }
        Err(error) => {
            log::error!("a helper can't begin: {error}");
            EXIT_SOFTWARE
        }
    }
}

fn begin() -> Result<(HelperStart, Vec<OwnedFd>), Error> {
    let document = fd::adopt_passed(DOCUMENT)?;
    let bytes = memfile::read(document.as_fd(), MOST_BYTES)?;
    let start: HelperStart = serde_json::from_slice(&bytes)
        .map_err(|error| Error::new("start", format!("the daemon's document: {error}"), Errno::EBADMSG))?;
    let descriptors = (0..start.descriptors)
        .map(|index| fd::adopt_passed(FIRST + RawFd::try_from(index).unwrap_or(RawFd::MAX - FIRST)))
        .collect::<Result<_, _>>()?;
    Ok((start, descriptors))
}

fn become_role(start: HelperStart, descriptors: Vec<OwnedFd>) -> i32 {
    match start.role {
        Role::Reporter => match exactly(descriptors).and_then(|[channel]| forkyard_reporter::run(channel)) {
            Ok(()) => 0,
            Err(error) => failed("reporter", &error),
        },
        Role::Router { identity, one_user } => match exactly(descriptors) {
            Ok([master, messages, heartbeat]) => router::run(router::RouterStart {
                title: start.title,
                master,
                messages,
                heartbeat: Some(heartbeat),
                identity,
                descriptor_limit: None,
                one_user,
            }),
            Err(error) => failed("router", &error),
        },
        Role::Inspector {
            identity,
            applications,
        } => match exactly(descriptors) {
            Ok([router, master, messages, heartbeat]) => {
                Log::install().send_to_master(messages);
                inspector::run(router, master, Some(heartbeat), &applications, identity.as_ref())
            }
            Err(error) => failed("inspector", &error),
        },
        Role::Web { identity, hosts } => {
            let served = exactly(descriptors).and_then(|[listener, master, messages, heartbeat]| {
                forkyard_web::run(WebStart {
                    identity,
                    hosts,
                    listener,
                    master,
                    messages,
                    heartbeat,
                })
            });
            match served {
                Ok(()) => 0,
                Err(error) => failed("web process", &error),
            }
        }
        Role::Worker(start) => match become_worker(*start, descriptors) {
            Ok(code) => code,
            Err(error) => failed("worker", &error),
        },
    }
}

fn become_worker(start: WorkerStart, descriptors: Vec<OwnedFd>) -> Result<i32, Error> {
    let has_elder = start.has_elder;
    let (context, own, share, reports) = assemble(start, descriptors)?;
    // There are many workers, and the document is several times as large as the settings that stay.
    heap::trim();
    if gateway::is_for(&context.settings.pool) {
        let serve = |context, own| gateway::serve(context, own, share.as_ref());
        return Ok(forkyard_worker::begin_concurrent(context, own, serve));
    }
    let mut runtime = forkyard_runtimes::within_worker(&context.settings.pool, reports)
        .ok_or_else(|| wrong("the application has a preloader"))?;
    Ok(forkyard_worker::begin(context, own, runtime.as_mut(), has_elder))
}

fn failed(what: &str, error: &Error) -> i32 {
    log::error!("the {what} can't go on: {error}");
    EXIT_SOFTWARE
}

fn wrong(what: &str) -> Error {
    Error::new("start", what, Errno::EBADMSG)
}

fn exactly<const N: usize>(descriptors: Vec<OwnedFd>) -> Result<[OwnedFd; N], Error> {
    descriptors
        .try_into()
        .map_err(|_| wrong("the wrong number of descriptors"))
}

type Parts = (GenerationContext, WorkerContext, Option<Share>, Option<OwnedFd>);

/// Gives each part of a worker its descriptors.
fn assemble(start: WorkerStart, mut descriptors: Vec<OwnedFd>) -> Result<Parts, Error> {
    let few = || wrong("too few descriptors");
    let fixed = start.context + start.own;
    if descriptors.len() != fixed + usize::from(start.processes.is_some()) + usize::from(start.has_reports) {
        return Err(wrong("the wrong number of descriptors"));
    }
    let mut others = descriptors.split_off(fixed).into_iter();
    let own = descriptors.split_off(start.context);
    let slots = start.settings.slots;
    let unfit = |error: forkyard_worker::ContextError| wrong(&error.to_string());
    let context = GenerationContext::assemble(start.settings, descriptors).map_err(unfit)?;
    let own = WorkerContext::assemble(start.slot, start.is_routed, own).map_err(unfit)?;
    let share = match start.processes {
        Some(processes) => {
            let memory = others.next().ok_or_else(few)?;
            Some(Share::adopt(memory, processes, slots as usize)?)
        }
        None => None,
    };
    let reports = others.next();
    Ok((context, own, share, reports))
}
