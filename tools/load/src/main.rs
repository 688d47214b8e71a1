//! forkyard-load: sends requests to a FastCGI server and measures its answers.
//!
//! Each client sends a request, waits for the whole answer, pauses if asked to, and sends the next (a closed loop). All
//! clients share one thread and one encoded request, so that on a small machine most of the time is the server's.
//!
//! * `arguments`: the command line.
//! * `request`: the bytes of the request, as nginx would send it.
//! * `exchange`: what an answer's bytes amount to.
//! * `stream`: connections of either kind.
//! * `run`: the loop.
//! * `tally`, `histogram`: what is measured.
//! * `report`: how it is told.
#![deny(unsafe_code)]

mod arguments;
mod exchange;
mod histogram;
mod report;
mod request;
mod run;
mod stream;
mod tally;

use arguments::Arguments;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Says what it does if the variable asks for it; see the documentation of the log.
    env_logger::init_from_env(env_logger::Env::new().filter_or("FORKYARD_LOG", "off"));
    match run::run(&arguments) {
        Ok(measured) => {
            report::print(&arguments, &measured);
            if measured.tally.completed == 0 {
                ExitCode::FAILURE
            } else {
                ExitCode::SUCCESS
            }
        }
        Err(error) => {
            eprintln!("forkyard-load: {error}");
            ExitCode::from(2)
        }
    }
}
