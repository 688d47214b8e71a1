//! What workers, preloaders and their children write: read in pieces, logged in lines. All of it is untrusted.

use crate::sys::Error;
use crate::sys::socket::Progress;
use nix::errno::Errno;
use std::os::fd::OwnedFd;

/// Bytes of a line before it is wrapped; php-fpm's `log_limit` default.
const LINE_BYTES: usize = 1024;
/// Bytes read per look, so that a flood from one worker does not keep the master from the others.
const LOOK_BYTES: usize = 16 * 1024;

/// A pipe that is read line by line.
#[derive(Debug)]
pub(super) struct Lines {
    pipe: OwnedFd,
    partial: Vec<u8>,
}

/// What a look at a pipe came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing more for now.
    Drained,
    /// More is there: look again after the others had their turn.
    More,
    /// Nobody can write any more.
    Ended,
}

impl Lines {
    /// Reads from the read end of a non-blocking pipe or socket.
    pub(super) fn new(pipe: OwnedFd) -> Lines {
        Lines {
            pipe,
            partial: Vec::new(),
        }
    }

    /// The pipe.
    pub(super) fn pipe(&self) -> &OwnedFd {
        &self.pipe
    }

    /// Reads what is there and gives each line, without its newline.
    pub(super) fn read(&mut self, mut line: impl FnMut(&[u8])) -> Look {
        let mut buffer = [0; 4096];
        for _ in 0..LOOK_BYTES / buffer.len() {
            match read(&self.pipe, &mut buffer) {
                Ok(Progress::Done(0)) | Err(_) => {
                    if !self.partial.is_empty() {
                        line(&self.partial);
                        self.partial.clear();
                    }
                    return Look::Ended;
                }
                Ok(Progress::Done(count)) => self.take(&buffer[..count], &mut line),
                Ok(Progress::WouldBlock) => return Look::Drained,
            }
        }
        Look::More
    }

    fn take(&mut self, bytes: &[u8], line: &mut impl FnMut(&[u8])) {
        for &byte in bytes {
            if byte != b'\n' {
                self.partial.push(byte);
            }
            if byte == b'\n' || self.partial.len() >= LINE_BYTES {
                if !self.partial.is_empty() {
                    line(&self.partial);
                }
                self.partial.clear();
            }
        }
    }
}

fn read(pipe: &OwnedFd, buffer: &mut [u8]) -> Result<Progress, Error> {
    loop {
        match nix::unistd::read(pipe, buffer) {
            Ok(count) => return Ok(Progress::Done(count)),
            Err(Errno::EAGAIN) => return Ok(Progress::WouldBlock),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::new("read", "pipe", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_wrapped() {
        let (reader, writer) = crate::sys::fd::pipe(true).unwrap();
        let mut lines = Lines::new(reader);
        let mut seen: Vec<Vec<u8>> = Vec::new();
        nix::unistd::write(&writer, b"one\n\ntw").unwrap();
        assert_eq!(lines.read(|l| seen.push(l.to_vec())), Look::Drained);
        assert_eq!(seen, [b"one".to_vec()]);
        nix::unistd::write(&writer, b"o\n").unwrap();
        nix::unistd::write(&writer, &[b'x'; 1500]).unwrap();
        drop(writer);
        assert_eq!(lines.read(|l| seen.push(l.to_vec())), Look::Ended);
        let lengths: Vec<usize> = seen.iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, 3, 1024, 476]);
    }
}
