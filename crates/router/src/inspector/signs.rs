//! By which files an application is known, beside [those that it is started from](forkyard_protocol::startup).

use forkyard_protocol::startup::{Proof, STARTUP_FILES};

/// The Python interpreters of virtual environments, relative to the root.
pub const PYTHONS: [&str; 2] = [".venv/bin/python", "venv/bin/python"];

/// What an application may have to say of itself.
pub const OWN_FILE: &str = "forkyard.toml";
/// What it may have to say to Passenger.
pub const PASSENGERFILE: &str = "Passengerfile.json";

/// The names of the files that show by themselves what an application is, for an application that has none of them.
pub fn all() -> String {
    let signs = STARTUP_FILES.iter().filter(|one| one.proof != Proof::Runtime);
    let mut names: Vec<&str> = signs.map(|one| one.file).collect();
    names.dedup();
    names.join(", ")
}
