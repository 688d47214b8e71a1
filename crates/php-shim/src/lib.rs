//! The shim between forkyard-php and libphp: C, compiled for each version of PHP whose headers were there.
#![forbid(unsafe_code)]

include!("versions.rs");
include!(concat!(env!("OUT_DIR"), "/shims.rs"));

/// The newest version that a shim was compiled for: what is meant where nothing says which.
pub const NEWEST: &str = env!("FORKYARD_PHP");

/// The shim for one version of PHP.
#[derive(Debug)]
pub struct Shim {
    /// The PHP version that it was compiled for, as `8.2`.
    pub version: &'static str,
    /// The number of the API that it was compiled for.
    pub api: u32,
    /// The shared object.
    pub object: &'static [u8],
}
