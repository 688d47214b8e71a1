//! Shared memory: a sealed memfd, mapped as atomic 64-bit words, so that hostile processes can't cause data races.

use super::error::{Error, Named, Result};
use super::{received, sender, timeout_responder};
use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::SealFlag;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Page size that all supported machines accept.
pub const PAGE_BYTES: usize = 4096;
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// A piece of shared memory.
#[derive(Debug)]
pub struct Memory {
    /// A read-write descriptor.
    pub writable: OwnedFd,
}

impl Memory {
    /// Creates zero pages, sealed against resizing.
    ///
    /// # Errors
    /// memfd_create(2), ftruncate(2) or fcntl(2).
    pub fn create(name: &str, pages: usize) -> Result<Memory> {
        let writable = super::memfile::create(name)?;
        let bytes = (pages * PAGE_BYTES) as libc::off_t;
        nix::unistd::ftruncate(&writable, bytes).named("ftruncate", name)?;
        super::memfile::seal(&writable, SealFlag::empty(), name)?;
        Ok(Memory { writable })
    }

    /// Wraps a descriptor of checked size and seals.
    pub fn adopt(writable: OwnedFd) -> Memory {
        Memory { writable }
    }

    /// Returns the number of whole pages; 0 if unknown.
    pub fn pages(&self) -> usize {
        let bytes = nix::sys::stat::fstat(&self.writable).map_or(0, |data| data.st_size);
        usize::try_from(bytes).unwrap_or(0) / PAGE_BYTES
    }

    /// Opens a descriptor that can never be mapped writable.
    ///
    /// # Errors
    /// dup(2).
    pub fn readable(&self) -> Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.writable.as_raw_fd());
        match std::fs::File::open(&path) {
            Ok(file) => Ok(OwnedFd::from(file)),
            Err(_) => (self.writable.try_clone()).map_err(|e| Error::from_io("dup", "scoreboard", &e)),
        }
    }
}

/// Returns a memory's number of pages, 0 if that is unknown.
pub fn size_in_pages(memory: BorrowedFd<'_>) -> usize {
    let size = nix::sys::stat::fstat(memory).map_or(0, |data| data.st_size);
    usize::try_from(size).unwrap_or(0) / PAGE_BYTES
}

/// A mapping of shared memory.
#[derive(Debug)]
pub struct Words {
    map: MmapRaw,
}

impl Words {
    /// Maps `pages` pages from `first` for reading and writing.
    ///
    /// # Errors
    /// mmap(2).
    pub fn map_writable(memory: BorrowedFd<'_>, first: usize, pages: usize) -> Result<Words> {
        let mut options = MmapOptions::new();
        options
            .offset((first * PAGE_BYTES) as u64)
            .len(pages * PAGE_BYTES);
        let map = options
            .map_raw(&memory.as_fd())
            .map_err(|e| Error::from_io("mmap", "scoreboard", &e))?;
        Ok(Words { map })
    }

    /// Takes `most` bytes from page `first` and leaves zeros; none if the memory ends before them.
    ///
    /// # Errors
    /// mmap(2).
    pub fn take_from(memory: BorrowedFd<'_>, first: usize, most: usize) -> Result<Vec<u8>> {
        let pages = most.div_ceil(PAGE_BYTES);
        if most == 0 || size_in_pages(memory) < first + pages {
            return Ok(Vec::new());
        }
        let map = Words::map_writable(memory, first, pages)?;
        let words = map.words().iter().map(|word| word.swap(0, Ordering::Relaxed));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        bytes.truncate(most);
        Ok(bytes)
    }

    /// Maps the first `pages` pages for reading.
    ///
    /// # Errors
    /// mmap(2).
    pub fn map_readable(memory: BorrowedFd<'_>, pages: usize) -> Result<Words> {
        let mut options = MmapOptions::new();
        options.len(pages * PAGE_BYTES);
        let map = options
            .map_raw_read_only(&memory.as_fd())
            .map_err(|e| Error::from_io("mmap", "scoreboard", &e))?;
        Ok(Words { map })
    }

    /// The words. A read-only mapping allows only loads.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is aligned, has `self`'s lifetime and `len` bytes, and can't shrink (sealed). Any bit
        // pattern is a valid AtomicU64, even if a hostile process tears it.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.map.len() / 8) }
    }

    /// Records senders of fatal signals in the words from `first` ([`sender`]).
    pub fn note_senders_at(&self, first: usize) {
        if let Some(place) = self.words().get(first..).and_then(<[_]>::first_chunk) {
            sender::tell_in(place);
        }
    }

    /// Keeps the bytes of a last answer in a word ([`timeout_responder`]).
    pub fn count_last_answer_at(&self, index: usize) {
        if let Some(word) = self.words().get(index) {
            timeout_responder::count_in(word);
        }
    }

    /// Keeps the bytes of requests in the first words ([`received`]).
    pub fn keep_received(&self) {
        if let Some(place) = self.words().first_chunk() {
            received::keep_in(place);
        }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        sender::forget(self.words());
        timeout_responder::forget(self.words());
        received::forget(self.words());
    }
}
