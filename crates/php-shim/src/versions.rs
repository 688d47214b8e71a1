/// The versions of PHP that a shim can be built for.
pub const VERSIONS: [&str; 5] = ["8.1", "8.2", "8.3", "8.4", "8.5"];
