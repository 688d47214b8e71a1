//! The memory of a program's table: made by the master, inherited by the workers that it forks.

use super::table::{self, Table};
use crate::sys::Result;
use crate::sys::shm::{Memory, PAGE_WORDS, Words};
use std::os::fd::AsFd;
use std::rc::Rc;

/// A table that several processes share.
#[derive(Debug, Clone)]
pub struct Share {
    words: Rc<Words>,
    processes: usize,
}

impl Share {
    /// An empty table for so many processes and workers.
    ///
    /// # Errors
    /// There is no memory.
    pub fn create(name: &str, processes: usize, slots: usize) -> Result<Share> {
        let pages = table::words(processes, slots).div_ceil(PAGE_WORDS);
        let memory = Memory::create(name, pages)?;
        let words = Words::map_writable(memory.writable.as_fd(), 0, pages)?;
        Ok(Share {
            words: Rc::new(words),
            processes,
        })
    }

    /// The table.
    pub fn table(&self) -> Table<'_> {
        Table::new(self.words.words(), self.processes)
    }
}
