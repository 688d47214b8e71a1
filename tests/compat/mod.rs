//! The same requests to php-fpm and to forkyard: the answers have to be equal, byte for byte.

mod client;
mod differences;
mod disabling;
mod faults;
mod heap;
mod held;
mod input;
mod likeness;
mod output;
mod paths;
mod precedence;
mod preloader;
mod records;
pub(crate) mod servers;
mod settings;
mod variables;
mod zero_bytes;

use crate::support::prelude::*;
use client::{Reply, Request};
use servers::Setup;
use servers::forkyard::Forkyard;
use servers::php_fpm::PhpFpm;

#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) fpm: PhpFpm,
    pub(crate) forkyard: Forkyard,
}

impl Pair {
    pub(crate) fn start(setup: &Setup) -> Pair {
        Pair {
            fpm: PhpFpm::start(setup),
            forkyard: Forkyard::start(setup),
        }
    }

    #[track_caller]
    pub(crate) fn same(&self, request: &Request) -> Reply {
        let expected = request.send(&self.fpm.socket);
        let answer = request.send(&self.forkyard.socket);
        assert_equal(&expected, &answer);
        answer
    }

    #[track_caller]
    pub(crate) fn get(&self, uri: &str) -> Reply {
        self.same(&Request::get(&scripts(), uri))
    }

    #[track_caller]
    pub(crate) fn post(&self, uri: &str, kind: &str, body: impl Into<Vec<u8>>) -> Reply {
        self.same(&Request::post(&scripts(), uri, kind, body))
    }

    #[track_caller]
    pub(crate) fn get_each(&self, before: &str, ways: &[&str]) {
        for way in ways {
            self.get(&format!("{before}{way}"));
        }
    }
}

pub(crate) fn pair() -> Pair {
    Pair::start(&Setup::new())
}

pub(crate) fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat/scripts")
}

#[track_caller]
pub(crate) fn assert_equal(expected: &Reply, answer: &Reply) {
    if expected == answer {
        return;
    }
    let (left, right) = (expected.text(), answer.text());
    let different = left.lines().zip(right.lines()).position(|(a, b)| a != b);
    let at = different.unwrap_or_else(|| left.lines().count().min(right.lines().count()));
    let around = |text: &str| {
        text.lines()
            .skip(at.saturating_sub(3))
            .take(8)
            .collect::<Vec<_>>()
            .join("\n")
    };
    panic!(
        "php-fpm and forkyard differ at line {at} of output:\nphp-fpm:\n{}\nforkyard:\n{}\nphp-fpm, whole: {expected:?}\nforkyard, whole: {answer:?}",
        around(&left),
        around(&right)
    );
}

#[track_caller]
pub(crate) fn take_file(path: &Path) -> String {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Ok(text) = fs::read_to_string(path) {
            fs::remove_file(path).expect("the directory is ours");
            return text;
        }
        assert!(Instant::now() < end, "{} does not come", path.display());
        std::thread::yield_now();
    }
}
