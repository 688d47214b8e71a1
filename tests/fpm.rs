//! forkyard-fpm beside the php-fpm that the system has.

#[path = "fpm/access.rs"]
mod access;
#[path = "fpm/both.rs"]
mod both;
#[path = "fpm/commands.rs"]
mod commands;
#[path = "fpm/files.rs"]
mod files;
#[path = "fpm/pair.rs"]
mod pair;
#[path = "fpm/said.rs"]
mod said;
#[path = "fpm/service.rs"]
mod service;
