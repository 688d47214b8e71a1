//! The worker part.
