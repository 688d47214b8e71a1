//! Targets of public parsers; private parsers have theirs in their crates.

mod fastcgi;
mod handover;
mod json;
mod keeper;
mod php;
mod scoreboard;
mod spawn;
mod status;

use forkyard_fuzz::{Target, target};

pub(crate) const TARGETS: &[Target] = &[
    target("fastcgi_requests", 1024, fastcgi::requests),
    target("fastcgi_pairs", 600, fastcgi::pairs),
    target("php_request_settings", 400, php::request_settings),
    target("status_query", 200, status::query),
    target("status_pages", 600, status::pages),
    target("fastcgi_answers", 1024, fastcgi::answers),
    target("fastcgi_output", 400, fastcgi::output),
    target("preloader_answer", 400, json::preloader_answer),
    target("spawn_properties", 1024, spawn::properties),
    target("spawn_response", 800, spawn::response),
    target("spawn_output", 400, spawn::output),
    target("start_failure", 600, spawn::start_failure),
    target("router_orders", 400, json::router_orders),
    target("router_channel", 100, json::router_channel),
    target("inspector_messages", 800, json::inspector_messages),
    target("scoreboard_slot", 4096, scoreboard::slot),
    target("control_request", 400, json::control_request),
    target("control_answer", 1024, json::control_answer),
    target("keeper_message", 400, keeper::message),
    target("handover_document", 1500, handover::document),
    target("handover_frames", 400, handover::frames),
];
