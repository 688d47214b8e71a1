//! A worker's own lines for the daemon's log: sent to the master, which writes them with the pool's name.

use crate::sys::socket;
use log::{Level, LevelFilter, Log, Metadata, Record};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

/// Bytes of one message; longer ones are cut. Below PIPE_BUF (4096), so that lines of several workers don't mix.
const MESSAGE_BYTES: usize = 2048;

/// Sends every record down a pipe or socket: one level digit (php-fpm's: 1 debug to 4 error), the text, a newline.
/// What does not fit is lost: a log that nobody reads must not stop a worker.
struct MessageLogger {
    channel: OwnedFd,
}

static LOGGER: OnceLock<MessageLogger> = OnceLock::new();

/// Makes `channel` the way for log records of this process. For a process that has not installed another logger.
pub fn install_logger(channel: OwnedFd) {
    let logger = LOGGER.get_or_init(|| MessageLogger { channel });
    if log::set_logger(logger).is_ok() {
        log::set_max_level(LevelFilter::Debug);
    }
}

impl Log for MessageLogger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let digit = match record.level() {
            Level::Error => '4',
            Level::Warn => '3',
            Level::Info => '2',
            Level::Debug | Level::Trace => '1',
        };
        let mut line = format!("{digit}{}", record.args()).replace(['\n', '\0'], " ").into_bytes();
        line.truncate(MESSAGE_BYTES - 1);
        line.push(b'\n');
        let _ = socket::send(self.channel.as_fd(), &line);
    }

    fn flush(&self) {}
}
