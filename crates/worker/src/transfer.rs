//! Transfers that may take several calls.

use super::connection::Connection;
use super::request::ClientGone;
use forkyard_sys::clock;
use forkyard_sys::socket::{Progress, Readiness, receive, send_gathered, shutdown_write, wait};
use std::io::IoSlice;
use std::time::Duration;

const DRAIN_LIMIT: Duration = Duration::from_secs(1);

pub(super) fn send_pieces(
    connection: &Connection,
    mut pieces: &mut [IoSlice<'_>],
    timeout: Duration,
) -> Result<(), ClientGone> {
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match send_gathered(connection.socket(), pieces) {
            Ok(Progress::Done(count)) => IoSlice::advance_slices(&mut pieces, count),
            Ok(Progress::WouldBlock) => {
                if !wait(connection.socket(), Readiness::Writable, timeout).is_ok_and(|ready| ready) {
                    return Err(ClientGone);
                }
            }
            Err(_) => return Err(ClientGone),
        }
    }
    Ok(())
}

pub(super) fn drain_input(connection: &Connection, buffer: &mut [u8]) {
    shutdown_write(connection.socket());
    let end = clock::now() + DRAIN_LIMIT;
    loop {
        match receive(connection.socket(), buffer) {
            Ok(Progress::Done(0)) | Err(_) => return,
            Ok(Progress::Done(_)) => {}
            Ok(Progress::WouldBlock) => {
                let left = end.since(clock::now());
                if left.is_zero()
                    || !wait(connection.socket(), Readiness::Readable, left).is_ok_and(|ready| ready)
                {
                    return;
                }
            }
        }
    }
}
