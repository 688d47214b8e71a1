//! The part of the PHP runtime that does not need libphp: script lookup, preloader settings and the protocol between
//! master and preloader. Only forkyard-php loads libphp.

pub mod files;
pub mod ini_snapshot;
pub mod request_settings;
pub mod script;
pub mod settings;
pub mod status;

pub use forkyard_protocol::preloader as protocol;
