//! The runtime part.
