//! By which files an application is known.

use super::look::Kind;

/// A file that shows what an application is, relative to its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign {
    /// The file.
    pub file: &'static str,
    /// What it shows.
    pub kind: Kind,
    /// It shows that only if it names a start script.
    pub needs_start_script: bool,
}

const fn sign(file: &'static str, kind: Kind) -> Sign {
    Sign {
        file,
        kind,
        needs_start_script: false,
    }
}

/// All of them; the first that is there counts.
pub const SIGNS: [Sign; 8] = [
    sign("passenger_wsgi.py", Kind::Wsgi),
    sign("wsgi.py", Kind::Wsgi),
    sign("asgi.py", Kind::Asgi),
    sign("config.ru", Kind::Rack),
    sign("app.js", Kind::Node),
    Sign {
        file: "package.json",
        kind: Kind::Node,
        needs_start_script: true,
    },
    sign("index.php", Kind::Php),
    sign("public/index.php", Kind::Php),
];

/// The Python interpreters of virtual environments, relative to the root.
pub const PYTHONS: [&str; 2] = [".venv/bin/python", "venv/bin/python"];

/// What an application may have to say of itself.
pub const OWN_FILE: &str = "forkyard.toml";
/// What it may have to say to Passenger.
pub const PASSENGERFILE: &str = "Passengerfile.json";

/// The files' names, for somebody who has none of them.
pub fn all() -> String {
    let names: Vec<&str> = SIGNS.iter().map(|sign| sign.file).collect();
    names.join(", ")
}
