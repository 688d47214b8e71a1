//! JSON with the fields of Passenger's error page.

use super::Report;
use crate::spawn::error::Ended;
use crate::spawn::handshake::response::Surroundings;
use serde_json::{Value, json};

pub(super) fn render(report: &Report, epoch_s: u64) -> Value {
    let mut subprocess = surroundings(&report.subprocess);
    subprocess["pid"] = json!(report.pid);
    subprocess["exit"] = json!(report.exit.map(Ended::describe));
    subprocess["stdout_and_err"] = json!(report.output);
    subprocess["processes_left"] = json!(report.left);
    json!({
        "program_name": "forkyard",
        "version": env!("CARGO_PKG_VERSION"),
        "time": epoch_s,
        "config": report.plan.to_json(),
        "journey": report.journey.to_json(report.started),
        "error": {
            "id": report.id.to_string(),
            "category": report.failure.category,
            "step": report.failure.step.name(),
            "summary": report.failure.summary,
            "problem_description": report.failure.problem,
            "solution_description": report.failure.solution,
            "aux_details": report.failure.details,
            "source": report.failure.source,
        },
        "diagnostics": {
            "duration": report.ended.since(report.started).as_secs_f64(),
            "subprocess": subprocess,
        },
    })
}

fn surroundings(known: &Surroundings) -> Value {
    let annotations = known.annotations.iter().cloned();
    json!({
        "envvars": known.envvars,
        "user_info": known.user_info,
        "ulimits": known.ulimits,
        "annotations": annotations.collect::<std::collections::BTreeMap<String, String>>(),
    })
}
