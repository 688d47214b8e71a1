//! The memory of a program's table, created by the master and inherited by workers.

use super::table::{self, Table};
use forkyard_sys::Result;
use forkyard_sys::shm::{Memory, PAGE_WORDS, Words};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

/// A table shared between processes.
#[derive(Debug, Clone)]
pub struct Share {
    words: Rc<Words>,
    memory: Rc<OwnedFd>,
    processes: usize,
}

impl Share {
    /// Creates an empty table.
    ///
    /// # Errors
    /// There is no memory.
    pub fn create(name: &str, processes: usize, slots: usize) -> Result<Share> {
        let memory = Memory::create(name, table_pages(processes, slots))?;
        Share::adopt(memory.writable, processes, slots)
    }

    /// Maps the table of a previous master: memory of the right size that can't shrink.
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

    /// The memory, for the next master.
    pub fn memory(&self) -> &OwnedFd {
        &self.memory
    }

    /// The number of places for processes.
    pub fn processes(&self) -> usize {
        self.processes
    }
}

/// The pages of memory that a table needs.
pub fn table_pages(processes: usize, slots: usize) -> usize {
    table::words(processes, slots).div_ceil(PAGE_WORDS)
}
