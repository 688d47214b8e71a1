//! The terminal that standard output or standard error is.

use std::io::IsTerminal;
use std::os::fd::AsRawFd;

/// How many columns it has; `None`: this is no terminal, or one that does not say.
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
    // SAFETY: the kernel writes to a value that lives for the call (ioctl_tty(2)).
    let result = unsafe { libc::ioctl(output.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    (result == 0 && size.ws_col > 0).then_some(usize::from(size.ws_col))
}
