//! The memory of a program's table: made by the master, inherited by the workers that it forks.

use super::table::{self, Table};
use crate::sys::Result;
use crate::sys::shm::{Memory, PAGE_WORDS, Words};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// A table that several processes share.
#[derive(Debug, Clone)]
pub struct Share {
    words: Rc<Words>,
    memory: Rc<OwnedFd>,
    processes: usize,
}

impl Share {
    /// An empty table for so many processes and workers.
    ///
    /// # Errors
    /// There is no memory.
    pub fn create(name: &str, processes: usize, slots: usize) -> Result<Share> {
        let memory = Memory::create(name, table_pages(processes, slots))?;
        Share::adopt(memory.writable, processes, slots)
    }

    /// The table that another master has made: memory of the right size that can't shrink.
    ///
    /// # Errors
    /// It can't be mapped.
    pub fn adopt(memory: OwnedFd, processes: usize, slots: usize) -> Result<Share> {
        let words = Words::map_writable(memory.as_fd(), 0, table_pages(processes, slots))?;
        Ok(Share {
            words: Rc::new(words),
            memory: Rc::new(memory),
            processes,
        })
    }

    /// The table.
    pub fn table(&self) -> Table<'_> {
        Table::new(self.words.words(), self.processes)
    }

    /// The memory, for a next master.
    pub fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// How many processes it has places for.
    pub fn processes(&self) -> usize {
        self.processes
    }
}

/// Pages of memory that a table for so many processes and workers takes.
pub fn table_pages(processes: usize, slots: usize) -> usize {
    table::words(processes, slots).div_ceil(PAGE_WORDS)
}
