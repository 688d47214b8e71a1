//! The reporter of a pool: answers status and ping at an address of their own. The master starts it with one end of a
//! socket as descriptor 3.

use forkyard::reporter::{self, CHANNEL};
use forkyard::sys::{fd, signal, title};
use std::process::ExitCode;

/// sysexits.h, EX_SOFTWARE.
const EXIT_SOFTWARE: u8 = 70;

fn main() -> ExitCode {
    title::prepare();
    signal::ignore_pipe();
    match fd::adopt_passed(CHANNEL).and_then(reporter::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("the reporter can't go on: {error}");
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}
