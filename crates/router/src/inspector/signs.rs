//! Files that identify an application, besides its [startup files](forkyard_protocol::startup).

use forkyard_protocol::startup::{Proof, STARTUP_FILES};

/// Interpreters of virtual environments, relative to the root.
pub const PYTHONS: [&str; 2] = [".venv/bin/python", "venv/bin/python"];

pub const OWN_FILE: &str = "forkyard.toml";
pub const PASSENGERFILE: &str = "Passengerfile.json";

/// Lists the files that identify an application, for an error message.
pub fn all() -> String {
    let signs = STARTUP_FILES.iter().filter(|one| one.proof != Proof::Runtime);
    let mut names: Vec<&str> = signs.map(|one| one.file).collect();
    names.dedup();
    names.join(", ")
}
