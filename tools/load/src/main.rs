//! forkyard-load: sends requests to a FastCGI server and measures its answers.
#![deny(unsafe_code)]

mod arguments;
mod clients;
mod exchange;
mod report;
mod request;
mod stream;
mod tally;

use arguments::Arguments;
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    env_logger::init_from_env(env_logger::Env::new().filter_or("FORKYARD_LOG", "off"));
    match clients::run(&arguments) {
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
