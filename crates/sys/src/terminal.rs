//! Terminal size.

use std::io::IsTerminal;
use std::os::fd::AsRawFd;

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
