//! What a master leaves to the next one: the document, the frame around it, and what descriptors are called.

pub mod changes;
pub mod document;
pub mod frame;
pub mod names;
