//! The command line.

use clap::Parser;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Sends requests to a FastCGI server and measures its answers.
#[derive(Debug, Parser)]
#[command(name = "forkyard-load", version)]
pub(crate) struct Arguments {
    /// The server's address: unix:/path, /path or host:port
    #[arg(long, value_parser = parse_address)]
    pub(crate) connect: Address,

    /// SCRIPT_FILENAME: the script to run, as the server sees it
    #[arg(long, value_name = "PATH")]
    pub(crate) script: String,

    /// REQUEST_URI, with a query string if there is one [default: / and the script's name]
    #[arg(long)]
    pub(crate) uri: Option<String>,

    /// Another parameter, or another value for one that is sent anyway; may be repeated
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_param)]
    pub(crate) params: Vec<(String, String)>,

    /// How many clients send requests side by side
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) clients: u32,

    /// Stop after so many seconds [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, conflicts_with = "requests")]
    pub(crate) duration: Option<Duration>,

    /// Stop after so many requests
    #[arg(long, value_name = "COUNT")]
    pub(crate) requests: Option<u64>,

    /// Keep connections (FCGI_KEEP_CONN) instead of opening one for each request
    #[arg(long)]
    pub(crate) keep: bool,

    /// How long each client waits between an answer and its next request
    #[arg(long, value_name = "MS", default_value = "0", value_parser = parse_milliseconds)]
    pub(crate) pause_ms: Duration,

    /// POST a body of this size
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) body_bytes: usize,

    /// Give a request up after this time; those in flight at the end are waited for as long
    #[arg(long, value_name = "MS", default_value = "30000", value_parser = parse_some_milliseconds)]
    pub(crate) timeout_ms: Duration,
}

/// The server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

fn parse_address(text: &str) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Address::Unix(path.into()));
    }
    if text.starts_with('/') {
        return Ok(Address::Unix(text.into()));
    }
    let mut addresses = text.to_socket_addrs().map_err(|error| error.to_string())?;
    addresses
        .next()
        .map(Address::Tcp)
        .ok_or_else(|| "the name has no address".to_owned())
}

fn parse_param(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE expected")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds expected")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a positive number of seconds expected".to_owned()),
    }
}

fn parse_milliseconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .map(Duration::from_millis)
        .map_err(|_| "a number of milliseconds expected".to_owned())
}

fn parse_some_milliseconds(text: &str) -> Result<Duration, String> {
    match parse_milliseconds(text)? {
        Duration::ZERO => Err("at least 1 ms expected".to_owned()),
        duration => Ok(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        assert_eq!(
            parse_address("unix:/run/a.sock"),
            Ok(Address::Unix("/run/a.sock".into()))
        );
        assert_eq!(
            parse_address("/run/a.sock"),
            Ok(Address::Unix("/run/a.sock".into()))
        );
        assert_eq!(
            parse_address("127.0.0.1:9000"),
            Ok(Address::Tcp(([127, 0, 0, 1], 9000).into()))
        );
        assert!(parse_address("nothing").is_err());
    }
}
