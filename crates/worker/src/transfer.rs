//! Transfers that may take several calls.

use super::connection::Connection;
use super::request::ClientGone;
use forkyard_sys::clock;
use forkyard_sys::socket::{Progress, Readiness, receive, send, send_gathered, shutdown_write, wait};
use std::io::IoSlice;
use std::time::Duration;

const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// Sends some of the bytes, as soon as there is room.
pub(super) fn send_some(
    connection: &Connection,
    bytes: &[u8],
    timeout: Duration,
) -> Result<usize, ClientGone> {
    loop {
        match send(connection.socket(), bytes) {
            Ok(Progress::Done(count)) => return Ok(count),
            Ok(Progress::WouldBlock) => wait_for_room(connection, timeout)?,
            Err(_) => return Err(ClientGone),
        }
    }
}

fn wait_for_room(connection: &Connection, timeout: Duration) -> Result<(), ClientGone> {
    match wait(connection.socket(), Readiness::Writable, timeout) {
        Ok(true) => Ok(()),
        Ok(false) | Err(_) => Err(ClientGone),
    }
}

pub(super) fn send_pieces(
    connection: &Connection,
    mut pieces: &mut [IoSlice<'_>],
    timeout: Duration,
) -> Result<(), ClientGone> {
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match send_gathered(connection.socket(), pieces) {
            Ok(Progress::Done(count)) => IoSlice::advance_slices(&mut pieces, count),
            Ok(Progress::WouldBlock) => wait_for_room(connection, timeout)?,
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
