//! `forkyard dev`: serves the application in one directory over HTTP on this machine, for the user who develops it.
//!
//! It is a program of its own, because it alone speaks HTTP to clients. It starts the daemon as its child, with a configuration
//! in a private directory, and speaks FastCGI to it as a web server does.
//!
//! * `subject`: what the directory holds.
//! * `configuration`: the daemon's configuration for it.
//! * `daemon`: the child: its start, its log, its restarts, its end.
//! * `watch`: which files have changed.
//! * `site`: what a path of a request means: a file, a script, or the application.
//! * `params`: a request's parameters for FastCGI.
//! * `hosts`: the names that this site answers to.
//! * `gateway`: one request over FastCGI, both bodies streamed.
//! * `answer`: the application's header.
//! * `reply`: an answer to the client.
//! * `port`: which process has a port.
//! * `page`: what is shown where the application has no page of its own.
//! * `output`: what is said on the terminal.
//! * `server`: connections, requests, and the end.
#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod answer;
mod configuration;
mod daemon;
mod gateway;
mod hosts;
mod kinds;
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

/// sysexits.h, EX_USAGE.
const EXIT_USAGE: u8 = 64;
/// sysexits.h, EX_SOFTWARE.
const EXIT_SOFTWARE: u8 = 70;

/// Serve the application in a directory on this machine, and load it anew when its files change
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

/// Why it ended.
#[derive(Debug)]
enum Failure {
    /// What was asked can't be done: the user has to change something.
    Refused(String),
    /// Something else went wrong.
    Failed(String),
}

/// Runs `forkyard-dev` with the arguments of this process.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (text, code) = match failure {
                Failure::Refused(text) => (text, EXIT_USAGE),
                Failure::Failed(text) => (text, EXIT_SOFTWARE),
            };
            eprintln!("forkyard: {text}");
            ExitCode::from(code)
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let subject = subject::find(&arguments.directory).map_err(Failure::Refused)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("can't begin: {error}")))?;
    runtime.block_on(server::run(arguments, subject))
}
