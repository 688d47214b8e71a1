//! Turns a process into a worker.

use super::{
    GenerationContext, ProcessSettingsError, Request, Runtime, WorkerContext, apply_environment,
    apply_process_settings, redirect_output, run,
};
use forkyard_host::logs::Log;
use forkyard_sys::fd::{copy, null};
use forkyard_sys::{session, title};
use std::os::fd::AsFd;

/// Exit code of a worker that could not start or continue (EX_SOFTWARE, sysexits.h).
pub const EXIT_SOFTWARE: i32 = 70;

/// [`begin`] for a worker with its own event loop, [`Concurrent`](super::Concurrent).
pub fn begin_concurrent(
    context: GenerationContext,
    own: WorkerContext,
    serve: impl FnOnce(GenerationContext, WorkerContext) -> i32,
) -> i32 {
    let mut nothing = |_: &mut Request<'_>| {};
    begin_as(context, own, &mut nothing, false, |context, own, _| {
        serve(context, own)
    })
}

/// Applies the pool's process settings, serves, and returns the exit code. The process must have no descriptors except
/// those of the contexts and runtime, and the standard streams. `has_elder`: an earlier generation also serves the
/// pool.
pub fn begin(
    context: GenerationContext,
    own: WorkerContext,
    runtime: &mut dyn Runtime,
    has_elder: bool,
) -> i32 {
    begin_as(context, own, runtime, has_elder, run)
}

fn begin_as(
    context: GenerationContext,
    own: WorkerContext,
    runtime: &mut dyn Runtime,
    has_elder: bool,
    serve: impl FnOnce(GenerationContext, WorkerContext, &mut dyn Runtime) -> i32,
) -> i32 {
    title::set(&format!(
        "{}: pool {}",
        context.settings.pool.title, context.settings.pool.name
    ));
    let result = null().map_err(ProcessSettingsError::from).and_then(|null| {
        Log::install().send_to_master(copy(&context.messages)?);
        session::begin()?;
        runtime.prepare(has_elder)?;
        apply_process_settings(&context.settings)?;
        Ok(redirect_output(&own, null.as_fd())?)
    });
    apply_environment(&context.settings);
    match result {
        Ok(()) => serve(context, own, runtime),
        Err(error) => {
            log::error!("child failed to initialize: {error}");
            EXIT_SOFTWARE
        }
    }
}
