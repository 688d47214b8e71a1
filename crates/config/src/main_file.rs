//! The system's configuration file and its built-in defaults. Other configurations have no such defaults, so that
//! several daemons don't conflict.

use std::path::Path;

/// The default configuration file of packages, the service and commands.
pub const SYSTEM: &str = "/etc/forkyard/forkyard.toml";
/// The control socket of root's daemon with that file.
pub const SYSTEM_CONTROL: &str = "/run/forkyard.sock";
pub(super) const SYSTEM_INCLUDE: &str = "pools/*.toml";

pub(super) fn is_system(path: &Path) -> bool {
    path == Path::new(SYSTEM)
}
