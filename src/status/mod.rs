//! The status part.
