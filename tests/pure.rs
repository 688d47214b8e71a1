//! Tests that need only the library: hostile input, fuzz targets, configuration files, and source rules.

mod config;
mod fuzz;
mod hostile_input;
mod mutations;
mod random;
mod tidy;
