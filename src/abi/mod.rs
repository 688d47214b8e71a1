//! The abi part.
