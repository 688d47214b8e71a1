//! The listen part.
