//! Every test that needs nothing but the library: hostile input, fuzz targets, files of configuration, and the rules of
//! the source.

mod config;
mod fuzz;
mod hostile_input;
mod mutations;
mod random;
mod tidy;
