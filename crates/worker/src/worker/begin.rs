//! A process becomes a worker.

use super::{Kit, Runtime, Seat, SettleError, run, settle, settle_environment, settle_output};
use crate::logs::Log;
use crate::sys::fd::null;
use crate::sys::{Error, title};
use std::os::fd::AsFd;

/// Exit code of a worker that could not become what its pool says (sysexits.h, EX_SOFTWARE).
const EXIT_SOFTWARE: i32 = 70;

/// Becomes what the pool says and serves; says the exit code. The process has no descriptors but those of kit, seat and
/// runtime, and the standard streams. `has_elder`: workers of an earlier generation serve the pool, too.
pub fn begin(kit: Kit, seat: Seat, runtime: &mut dyn Runtime, has_elder: bool) -> i32 {
    title::set(&format!(
        "{}: pool {}",
        kit.settings.pool.title, kit.settings.pool.name
    ));
    let result = null().map_err(SettleError::from).and_then(|null| {
        let messages = kit.messages.try_clone();
        Log::install().send_to_master(messages.map_err(|error| Error::from_io("dup", "", &error))?);
        runtime.prepare(has_elder)?;
        settle(&kit.settings)?;
        Ok(settle_output(&seat, null.as_fd())?)
    });
    settle_environment(&kit.settings);
    match result {
        Ok(()) => run(kit, seat, runtime),
        Err(error) => {
            log::error!("child failed to initialize: {error}");
            EXIT_SOFTWARE
        }
    }
}
