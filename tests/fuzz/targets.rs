//! Targets of public parsers; private parsers have theirs in their crates.

mod fastcgi;
mod handover;
mod json;
mod keeper;
mod php;
mod scoreboard;
mod spawn;
mod status;

use forkyard_fuzz::{Grammar, Target, target, words};

#[rustfmt::skip]
pub(crate) const TARGETS: &[Target] = &[
    target("fastcgi_requests", Grammar::Records, words::FASTCGI, 1024, fastcgi::requests),
    target("fastcgi_pairs", Grammar::Bytes, words::FASTCGI, 600, fastcgi::pairs),
    target("php_request_settings", Grammar::Bytes, words::PHP, 400, php::request_settings),
    target("status_query", Grammar::Bytes, words::STATUS, 200, status::query),
    target("status_pages", Grammar::Lines, words::MARKUP, 600, status::pages),
    target("fastcgi_answers", Grammar::Records, words::FASTCGI, 1024, fastcgi::answers),
    target("fastcgi_output", Grammar::Bytes, &[], 400, fastcgi::output),
    target("preloader_answer", Grammar::Json, words::PRELOADER, 400, json::preloader_answer),
    target("spawn_properties", Grammar::Json, words::PROPERTIES, 1024, spawn::properties),
    target("spawn_response", Grammar::Lines, words::RESPONSE, 800, spawn::response),
    target("spawn_output", Grammar::Bytes, &[], 400, spawn::output),
    target("start_failure", Grammar::Json, words::START_FAILURE, 600, spawn::start_failure),
    target("router_orders", Grammar::Json, words::ROUTER, 400, json::router_orders),
    target("router_channel", Grammar::Bytes, &[], 100, json::router_channel),
    target("inspector_messages", Grammar::Json, words::INSPECTOR, 800, json::inspector_messages),
    target("scoreboard_slot", Grammar::Bytes, &[], 4096, scoreboard::slot),
    target("control_request", Grammar::Json, words::CONTROL, 400, json::control_request),
    target("control_answer", Grammar::Json, words::CONTROL, 1024, json::control_answer),
    target("keeper_message", Grammar::Lines, words::NOTIFY, 400, keeper::message),
    target("handover_document", Grammar::Json, words::HANDOVER, 1500, handover::document),
    target("handover_frames", Grammar::Bytes, &["forkyard"], 400, handover::frames),
];
