//! The sys part.
