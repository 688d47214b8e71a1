//! forkyard-fpm beside the php-fpm that the system has.

#[path = "fpm/access.rs"]
mod access;
#[path = "fpm/both.rs"]
mod both;
#[path = "fpm/commands.rs"]
mod commands;
#[path = "fpm/dropin.rs"]
mod dropin;
#[path = "fpm/files.rs"]
mod files;
#[path = "fpm/import.rs"]
mod import;
#[path = "fpm/listening.rs"]
mod listening;
#[path = "fpm/pair.rs"]
mod pair;
#[path = "fpm/queue.rs"]
mod queue;
#[path = "fpm/reload.rs"]
mod reload;
#[path = "fpm/said.rs"]
mod said;
#[path = "fpm/service.rs"]
mod service;
#[path = "fpm/settings.rs"]
mod settings;
#[path = "skip/mod.rs"]
mod skip;
#[path = "fpm/sockets.rs"]
mod sockets;
#[path = "fpm/start.rs"]
mod start;
#[path = "fpm/status_listen.rs"]
mod status_listen;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared with other tests, which use all of it"
)]
#[path = "it/support/mod.rs"]
mod support;
#[path = "fpm/takeover.rs"]
mod takeover;
#[path = "fpm/upstream.rs"]
mod upstream;
#[path = "fpm/version.rs"]
mod version;
