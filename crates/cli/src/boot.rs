//! How the processes of a generation were started, as text.

use super::control::printable;
use forkyard_protocol::control::{Boot, GenerationStatus};
use std::fmt::Write;

pub(super) fn preloader(generation: &GenerationStatus) -> String {
    let kind = match generation.preloading.as_deref() {
        Some("zygote") => "zygote",
        _ => "preloader",
    };
    let pid = generation.preloader;
    pid.map_or_else(String::new, |pid| format!(", {kind} {pid}"))
}

/// Adds how a generation's processes were started, if there is anything unusual.
pub(super) fn of_generation(generation: &GenerationStatus, text: &mut String) {
    if let Some(reason) = &generation.unfit {
        let _ = writeln!(
            text,
            "    has its own preloader and no zygote: {}",
            printable(reason)
        );
    }
    for left_out in &generation.left_out {
        let _ = writeln!(
            text,
            "    without {} = {} ({}:{}), because PHP does not start with it: {}",
            printable(&left_out.key),
            printable(&left_out.value),
            printable(&left_out.file),
            left_out.line,
            printable(&left_out.reason)
        );
    }
    if let Some(boot) = &generation.boot {
        let _ = writeln!(text, "    {}", line(boot));
    }
    loads_in_workers(generation.connected_to.as_deref(), text);
}

fn line(boot: &Boot) -> String {
    let took = boot
        .took_ms
        .map_or_else(String::new, |ms| format!(" in {:.2} s", ms as f64 / 1000.0));
    if let Some(because) = &boot.because {
        return format!(
            "boots in each request ({}), not once: {}; {} requests since",
            boot.mode,
            printable(because),
            boot.requests
        );
    }
    let isolation = boot.isolation.as_ref();
    let how = isolation.map_or_else(String::new, |isolation| format!(", {}", printable(isolation)));
    let mut line = format!("boots once ({}{how}){took}", boot.mode);
    for request in &boot.warm_up {
        let seconds = request.took_ms as f64 / 1000.0;
        let _ = write!(line, ", {} in {seconds:.2} s", printable(&request.path));
    }
    let _ = write!(line, "; {} requests since", boot.requests);
    if let Some(rewound) = boot.rewound.as_ref().filter(|it| it.requests > 0) {
        let mean = |sum: u64| sum as f64 / rewound.requests as f64;
        let _ = write!(
            line,
            ", {} put back in {:.3} ms with {:.0} pages each",
            rewound.requests,
            mean(rewound.micros) / 1000.0,
            mean(rewound.pages)
        );
    }
    line
}

/// Adds that each worker loads the application, and the servers that are the reason.
pub(super) fn loads_in_workers(servers: Option<&str>, text: &mut String) {
    if let Some(servers) = servers {
        let _ = writeln!(
            text,
            "    each worker loads the application, because it has left connections open: {}",
            printable(servers)
        );
    }
}
