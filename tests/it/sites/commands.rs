//! Commands for application pools.
