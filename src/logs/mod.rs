//! The logs part.
