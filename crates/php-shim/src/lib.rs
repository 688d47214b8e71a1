//! The shim between forkyard-php and libphp: C, compiled for each version of PHP whose headers were there.
#![forbid(unsafe_code)]

include!(concat!(env!("OUT_DIR"), "/shims.rs"));

/// The APIs of PHP 8.2, 8.3, 8.4 and 8.5. Zygotes and snapshots depend on how PHP works inside: with any other there are neither.
const KNOWN_APIS: [u32; 4] = [20_220_829, 20_230_831, 20_240_924, 20_250_925];

/// Whether zygotes and snapshots work with an API of PHP.
pub fn is_known(api: u32) -> bool {
    KNOWN_APIS.contains(&api)
}

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
