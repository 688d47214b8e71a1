//! Fuzz targets: one function for each parser of what another process, or another's file, says.
//!
//! A target takes any bytes and fails where the parser does not keep a promise: what is read and written again is the same,
//! what comes in pieces means what it means at once, what is held stays within its limit. Targets of parsers that other parts
//! don't see stand beside them, in files called `fuzz.rs`.
//!
//! `cargo test` runs every target with its corpus (`fuzz/corpus/TARGET`) and some thousand inputs made of it; `scripts/fuzz`
//! runs them guided by coverage, as many as are wanted.

mod fastcgi;
mod json;
mod mutate;
#[path = "../../tests/random/mod.rs"]
mod random;
#[cfg(test)]
mod tests;
mod words;

pub use mutate::mutate;

use crate::{config, estate, keeper, logs, router, runtime, scoreboard, slowlog, spawn, status, worker};
use random::Random;
use std::fmt::Debug;

/// A parser under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is that of its corpus.
    pub name: &'static str,
    /// Of what its input is made.
    pub grammar: Grammar,
    /// Words that mean something in it.
    pub words: &'static [&'static str],
    /// The longest input that is tried.
    pub most_bytes: usize,
    /// Feeds the parser and panics where it breaks a promise.
    pub run: fn(&[u8]),
}

/// Of what an input is made: a mutation keeps to it most of the time, so that it gets beyond the first check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grammar {
    /// FastCGI records.
    Records,
    /// Lines.
    Lines,
    /// A JSON value.
    Json,
    /// Nothing in particular.
    Bytes,
}

const fn target(
    name: &'static str,
    grammar: Grammar,
    words: &'static [&'static str],
    most_bytes: usize,
    run: fn(&[u8]),
) -> Target {
    Target {
        name,
        grammar,
        words,
        most_bytes,
        run,
    }
}

/// Every target.
#[rustfmt::skip]
pub const TARGETS: &[Target] = &[
    // What a web server, or a client in its place, sends.
    target("fastcgi_requests", Grammar::Records, words::FASTCGI, 1024, fastcgi::requests),
    target("fastcgi_pairs", Grammar::Bytes, words::FASTCGI, 600, fastcgi::pairs),
    target("router_requests", Grammar::Records, words::FASTCGI, 1024, router::fuzz::requests),
    target("router_bodies", Grammar::Records, words::FASTCGI, 1024, router::fuzz::bodies),
    target("cgi_variables", Grammar::Lines, words::CGI, 1024, runtime::cgi::fuzz::variables),
    target("http_request", Grammar::Lines, words::CGI, 1024, runtime::http::fuzz::request),
    target("php_request_settings", Grammar::Bytes, words::PHP, 400, runtime::php::fuzz::request_settings),
    target("status_query", Grammar::Bytes, words::STATUS, 200, status::fuzz::query),
    target("status_pages", Grammar::Lines, words::MARKUP, 600, status::fuzz::pages),
    target("access_lines", Grammar::Lines, words::MARKUP, 800, worker::fuzz::lines),
    // What programs and applications answer.
    target("fastcgi_answers", Grammar::Records, words::FASTCGI, 1024, fastcgi::answers),
    target("fastcgi_output", Grammar::Bytes, &[], 400, fastcgi::output),
    target("cgi_head", Grammar::Lines, words::HEADERS, 1024, runtime::cgi::fuzz::head),
    target("http_answer", Grammar::Lines, words::HEADERS, 1024, runtime::http::fuzz::answer),
    target("access_head", Grammar::Lines, words::HEADERS, 600, worker::fuzz::head),
    target("log_message", Grammar::Bytes, &[], 400, logs::fuzz::message),
    // What preloaders, workers and routers say.
    target("preloader_answer", Grammar::Json, words::PRELOADER, 400, json::preloader_answer),
    target("spawn_answer", Grammar::Json, words::PRELOADER, 400, spawn::fuzz::answer),
    target("spawn_properties", Grammar::Json, words::PROPERTIES, 1024, spawn::fuzz::properties),
    target("spawn_response", Grammar::Lines, words::RESPONSE, 800, spawn::fuzz::response),
    target("spawn_output", Grammar::Bytes, &[], 400, spawn::fuzz::output),
    target("spawn_letter", Grammar::Json, words::LETTER, 600, spawn::fuzz::letter),
    target("router_orders", Grammar::Json, words::ROUTER, 400, json::router_orders),
    target("router_channel", Grammar::Bytes, &[], 100, router::fuzz::channel),
    target("scout_messages", Grammar::Json, words::SCOUT, 800, json::scout_messages),
    target("worker_note", Grammar::Bytes, &[], 40, worker::fuzz::note),
    target("scoreboard_slot", Grammar::Bytes, &[], 4096, scoreboard::fuzz::slot),
    target("http_table", Grammar::Bytes, &[], 800, runtime::http::fuzz::table),
    target("slowlog_told", Grammar::Lines, words::CALLS, 800, slowlog::fuzz::told),
    target("slowlog_php", Grammar::Bytes, &[], 1024, slowlog::fuzz::php),
    // What operators, and other masters, send.
    target("control_request", Grammar::Json, words::CONTROL, 400, json::control_request),
    target("control_answer", Grammar::Json, words::CONTROL, 1024, json::control_answer),
    target("keeper_message", Grammar::Lines, words::NOTIFY, 400, keeper::fuzz::message),
    target("estate_document", Grammar::Json, words::ESTATE, 1500, estate::fuzz::document),
    target("estate_frames", Grammar::Bytes, &["forkyard"], 400, estate::fuzz::frames),
    // Files.
    target("site_toml", Grammar::Lines, words::SITE, 800, config::fuzz::site),
    target("site_passengerfile", Grammar::Json, words::PASSENGER, 600, config::fuzz::passengerfile),
    target("site_package", Grammar::Json, words::PASSENGER, 400, config::fuzz::package),
    target("config_toml", Grammar::Lines, words::CONFIG, 1500, config::fuzz::toml),
    target("fpm_ini", Grammar::Lines, words::FPM, 1500, config::fuzz::fpm),
    target("fpm_import", Grammar::Lines, words::FPM, 1500, config::fuzz::import),
    target("access_format", Grammar::Bytes, words::ACCESS, 200, worker::fuzz::format),
    target("glob", Grammar::Lines, &["*", "?", "[", "]", "[!", "[^", "-"], 120, config::fuzz::glob),
];

/// What an input decides beside its bytes, such as where it is cut.
fn random_of(input: &[u8]) -> Random {
    // FNV-1a.
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    Random::new(hash)
}

/// Calls `take` with the input cut into pieces, empty ones among them.
pub(crate) fn in_pieces(input: &[u8], mut take: impl FnMut(&[u8])) {
    let mut random = random_of(input);
    let most = [1, 3, 20, 300][random.below(4)];
    let mut rest = input;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at(rest.len().min(random.below(most + 1)));
        // Each in memory of its own, so that reading beyond it is noticed.
        let alone = Box::<[u8]>::from(piece);
        take(&alone);
        rest = later;
    }
}

/// A number that the input decides, below `bound`.
pub(crate) fn number_of(input: &[u8], bound: usize) -> usize {
    random_of(input).below(bound)
}

/// What serde reads is read the same when it is written again.
fn survives<T>(input: &[u8]) -> Option<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    let value: T = serde_json::from_slice(input).ok()?;
    let written = match serde_json::to_vec(&value) {
        Ok(written) => written,
        Err(error) => panic!("{value:?} can't be written: {error}"),
    };
    match serde_json::from_slice::<T>(&written) {
        Ok(again) => assert_eq!(again, value),
        Err(error) => panic!("{value:?} can't be read again: {error}"),
    }
    Some(value)
}

/// Text that goes into one line of a log or a terminal.
pub(crate) fn is_one_line(text: &str) -> bool {
    !text.contains(['\n', '\r', '\0', '\u{1b}'])
}
