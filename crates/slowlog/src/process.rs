//! Runs a tracer: adopts its descriptors and reads its job from standard input.

use super::job::Job;
use super::tracer_effects::{Descriptors, end_line, write};
use super::{COPY, LOG, MEMORY, MESSAGES, PROCESS, QUESTIONS};
use forkyard_host::logs::Log;
use forkyard_sys::{inherited, memfile};
use std::fmt;
use std::io::stdin;
use std::os::fd::AsFd;

const EXIT_SOFTWARE: u8 = 70;
const MAX_JOB_BYTES: usize = 1 << 20;

/// Writes one entry and returns the exit code. Must be the first thing in its process.
pub fn run() -> u8 {
    let descriptors = Descriptors {
        memory: inherited::adopt(MEMORY),
        questions: inherited::adopt(QUESTIONS),
        process: inherited::adopt(PROCESS),
        copy: inherited::adopt(COPY),
    };
    let (Some(log), Some(messages)) = (inherited::adopt(LOG), inherited::adopt(MESSAGES)) else {
        eprintln!("forkyard: a tracer is started by forkyard alone");
        return EXIT_SOFTWARE;
    };
    Log::install().send_to_master(end_line(messages));
    let not_understood = |error: &dyn fmt::Display| {
        log::error!("the tracer does not understand the master: {error}");
        EXIT_SOFTWARE
    };
    let text = match memfile::read(stdin().as_fd(), MAX_JOB_BYTES) {
        Ok(text) => text,
        Err(error) => return not_understood(&error),
    };
    let job: Job = match serde_json::from_slice(&text) {
        Ok(job) => job,
        Err(error) => return not_understood(&error),
    };
    match write(&job, descriptors, log) {
        Ok(()) => 0,
        Err(error) => {
            log::error!("{error}");
            EXIT_SOFTWARE
        }
    }
}
