//! The reason of a number, in a sentence.

use std::fmt;

#[derive(Debug, Clone, PartialEq)]
pub enum Reason {
    /// The pool has not served yet.
    Start,
    /// Bytes of a usual worker, and bytes that there are for all.
    Memory { worker: u64, room: u64 },
    /// The part of their time that requests compute, the processors that the pool gets, and what memory would hold.
    Processors { computing: f64, cores: f64, memory: u32 },
    /// Requests waited this many times longer with so many workers.
    Slower { times: f64, workers: u32 },
    /// Requests wait longer than usual: a trial with fewer workers runs.
    Trial,
    /// Fewer workers did less work, although requests wait longer than usual.
    Needed,
    /// The kernel reports that processes wait for memory.
    Pressure,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        match self {
            Reason::Start => f.write_str("a first guess; the pool has not served yet"),
            Reason::Memory { worker, room } => write!(
                f,
                "memory; a worker needs {} MiB of its own, and {} MiB are there for all",
                mib(*worker),
                mib(*room)
            ),
            Reason::Processors {
                computing,
                cores,
                memory,
            } => {
                let cores = (cores * 10.0).round() / 10.0;
                let noun = if cores == 1.0 { "processor" } else { "processors" };
                write!(
                    f,
                    "{noun}; requests compute {:.0} % of their time on {cores} {noun} (memory holds {memory})",
                    computing * 100.0
                )
            }
            Reason::Slower { times, workers } => write!(
                f,
                "what requests wait for was {times:.1} times slower with {workers} workers; fewer do as much"
            ),
            Reason::Trial => {
                f.write_str("what requests wait for is slow; fewer workers are tried for some seconds")
            }
            Reason::Needed => {
                f.write_str("what requests wait for is busy; fewer workers do less, and more do no more")
            }
            Reason::Pressure => f.write_str("memory; the kernel reports that processes wait for it"),
        }
    }
}
