//! State that a master leaves to its successor: the document, its frame and the names of descriptors.

pub mod changes;
pub mod document;
pub mod frame;
pub mod names;
