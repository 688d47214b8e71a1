//! The shim between forkyard-php and libphp: C code, compiled for each PHP version with installed headers.
#![forbid(unsafe_code)]

include!(concat!(env!("OUT_DIR"), "/shims.rs"));

/// The APIs of PHP 8.2 to 8.5. Zygotes and snapshots depend on PHP's internals and work only with these.
const KNOWN_APIS: [u32; 4] = [20_220_829, 20_230_831, 20_240_924, 20_250_925];

/// Whether zygotes and snapshots work with an API of PHP.
pub fn is_known(api: u32) -> bool {
    KNOWN_APIS.contains(&api)
}

/// The newest version with a shim, the default.
pub const NEWEST: &str = env!("FORKYARD_PHP");

/// The shim for one version of PHP.
#[derive(Debug)]
pub struct Shim {
    /// Its PHP version, such as `8.2`.
    pub version: &'static str,
    /// The API number that it was compiled for.
    pub api: u32,
    /// The shared object.
    pub object: &'static [u8],
}
