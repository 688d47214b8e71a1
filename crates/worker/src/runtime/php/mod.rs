//! The part of the PHP runtime that knows no PHP: what a request's parameters say about its script, the settings that
//! go to a preloader, and the lines that master and preloader exchange.
//!
//! libphp itself is known to the forkyard-php executable only.

pub mod files;
pub mod ini_snapshot;
pub mod request_settings;
pub mod script;
pub mod settings;
pub mod status;

pub use forkyard_protocol::preloader as protocol;
