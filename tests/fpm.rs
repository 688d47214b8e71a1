//! forkyard-fpm beside the php-fpm that the system has.

#[path = "fpm/both.rs"]
mod both;
#[path = "fpm/commands.rs"]
mod commands;
#[path = "fpm/files.rs"]
mod files;
#[path = "fpm/service.rs"]
mod service;
#[path = "fpm/status_listen.rs"]
mod status_listen;
