//! Terminals: their size and their input.

use super::error::{Error, Result};
use super::timeout::poll_timeout;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use std::io::IsTerminal;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The input of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    Nothing,
    Ready,
    /// The terminal is gone. Reading returns at once, for ever.
    HungUp,
}

/// Waits for input, at most `limit`. A signal ends the wait.
///
/// # Errors
/// poll(2).
pub fn wait_for_input(terminal: BorrowedFd<'_>, limit: Duration) -> Result<Input> {
    let mut watched = [PollFd::new(terminal, PollFlags::POLLIN)];
    match poll(&mut watched, poll_timeout(limit)) {
        Ok(0) | Err(Errno::EINTR) => return Ok(Input::Nothing),
        Ok(_) => {}
        Err(errno) => return Err(Error::new("poll", "terminal", errno)),
    }
    let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    Ok(match watched[0].revents() {
        Some(flags) if flags.intersects(gone) => Input::HungUp,
        _ => Input::Ready,
    })
}

/// Number of columns, `None` if unknown.
pub fn columns(output: &(impl IsTerminal + AsRawFd)) -> Option<usize> {
    if !output.is_terminal() {
        return None;
    }
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the value outlives the call (ioctl_tty(2)).
    let result = unsafe { libc::ioctl(output.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
