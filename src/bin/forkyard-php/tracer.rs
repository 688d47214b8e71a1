//! `forkyard-php --trace`: writes down what a worker is busy with. The master starts it, with what is to be done on
//! standard input and the descriptors below; it loads no PHP.

use forkyard::logs::Log;
use forkyard::slowlog::{self, Job};
use forkyard::sys::fd::adopt;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::process::ExitCode;

/// EX_SOFTWARE, sysexits.h.
const EXIT_SOFTWARE: u8 = 70;
/// A job is a few hundred bytes.
const MAX_JOB_BYTES: u64 = 1 << 20;

/// Does what standard input says.
pub(crate) fn run() -> ExitCode {
    // SAFETY: the master starts this program with these descriptors, and nothing has taken them yet.
    let (log, messages) = unsafe { (adopt(slowlog::LOG), adopt(slowlog::MESSAGES)) };
    Log::install().send_to_master(messages);
    let job = match read_job() {
        Ok(job) => job,
        Err(error) => {
            log::error!("the tracer does not understand the master: {error}");
            return ExitCode::from(EXIT_SOFTWARE);
        }
    };
    // SAFETY: as above; it is there if the job says so.
    let memory = job
        .has_memory
        .then(|| File::from(unsafe { adopt(slowlog::MEMORY) }));
    match slowlog::write(&job, memory, &mut File::from(log)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error}");
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

/// The job is a file, whose beginning is not where its writer has left it.
fn read_job() -> Result<Job, serde_json::Error> {
    let mut text = Vec::new();
    let file = std::io::stdin().as_fd().try_clone_to_owned();
    let mut file = file.map(File::from).map_err(serde_json::Error::io)?;
    file.rewind()
        .and_then(|()| file.take(MAX_JOB_BYTES).read_to_end(&mut text))
        .map_err(serde_json::Error::io)?;
    serde_json::from_slice(&text)
}
