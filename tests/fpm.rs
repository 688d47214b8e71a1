//! forkyard-fpm compared with the system's php-fpm.

mod abandoned;
mod access;
mod both;
mod commands;
mod day;
mod dropin;
mod files;
mod import;
mod levels;
mod links;
mod listening;
mod name;
mod pair;
mod queue;
mod reload;
mod said;
mod service;
mod settings;
mod sockets;
mod start;
mod start_settings;
mod status_listen;
mod takeover;
mod upstream;
mod variables;
mod version;
