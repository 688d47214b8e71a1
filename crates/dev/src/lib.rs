//! `forkyard dev`: serves the application in a directory over HTTP on this machine, for its developer.
//!
//! It is a separate program because only it speaks HTTP to clients. It starts the daemon as a child, with a
//! configuration in a private directory, and sends it requests over FastCGI as a web server does.
#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod answer;
mod configuration;
mod daemon;
mod gateway;
mod hosts;
mod page;
mod params;
mod port;
mod reply;
mod server;
mod site;
mod subject;
mod watch;

use clap::Parser;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// EX_USAGE, sysexits.h.
const EXIT_USAGE: u8 = 64;
/// EX_SOFTWARE, sysexits.h.
const EXIT_SOFTWARE: u8 = 70;

/// Serve the application in a directory on this machine, and reload it when its files change
#[derive(Debug, Parser)]
#[command(name = "forkyard dev", version, max_term_width = 80)]
pub struct Arguments {
    /// The application's directory
    #[arg(default_value = ".")]
    directory: PathBuf,
    /// Port to listen on; 0: any free one
    #[arg(short, long, default_value_t = 8000)]
    port: u16,
    /// Address to listen on; 0.0.0.0 or :: for other machines as well
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// Another name that browsers may use for this site; .example.test: and all below it; may be repeated
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
}

#[derive(Debug)]
enum DevFailure {
    /// The user has to change something.
    Refused(String),
    Failed(String),
}

/// Runs `forkyard-dev` with this process's arguments.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (text, code) = match failure {
                DevFailure::Refused(text) => (text, EXIT_USAGE),
                DevFailure::Failed(text) => (text, EXIT_SOFTWARE),
            };
            eprintln!("forkyard: {text}");
            ExitCode::from(code)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), DevFailure> {
    let subject =
        subject::find(&arguments.directory).map_err(|error| DevFailure::Refused(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| DevFailure::Failed(format!("can't begin: {error}")))?;
    runtime.block_on(server::run(arguments, subject))
}
