//! The system's configuration: where it is, and what it has by itself. Other configurations have none of this, so that several
//! daemons of a machine do not meet.

use std::path::Path;

/// Where the configuration is by default: what packages, the service and commands use.
pub const SYSTEM: &str = "/etc/forkyard/forkyard.toml";
/// The control socket of root's daemon with that configuration.
pub const SYSTEM_CONTROL: &str = "/run/forkyard.sock";
/// What that configuration includes: the files in the directory beside it.
pub(super) const SYSTEM_INCLUDE: &str = "pools/*.toml";

/// Whether a configuration is the system's.
pub(super) fn is_system(path: &Path) -> bool {
    path == Path::new(SYSTEM)
}
