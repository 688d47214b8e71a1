//! Checks a configuration file.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::error::{Diagnostic, Severity};
use super::host::{load, resources};
use super::machine::Resources;
use super::memory::workers_before_the_autopilot;
use super::model::Pool;
use super::skip::Skipped;
use super::{Errors, Loaded};

/// The exit code for an invalid configuration (`EX_CONFIG`, sysexits.h).
pub const EXIT_INVALID: u8 = 78;

/// Checks a configuration and writes one line per finding. Returns 0 or [`EXIT_INVALID`]. `further`: additional checks.
/// `strict`: warnings count as errors.
///
/// # Errors
/// Writing to `out` failed.
pub fn check(
    path: &Path,
    strict: bool,
    further: &dyn Fn(&Loaded) -> Vec<Diagnostic>,
    out: &mut dyn Write,
) -> io::Result<u8> {
    let (mut diagnostics, loaded) = match load(path) {
        Ok(mut loaded) => {
            let mut diagnostics = std::mem::take(&mut loaded.warnings);
            diagnostics.extend(further(&loaded));
            (diagnostics, Some(loaded))
        }
        Err(Errors { diagnostics }) => (diagnostics, None),
    };
    diagnostics.sort_by_key(|diagnostic| diagnostic.location.rank());
    if strict {
        for diagnostic in &mut diagnostics {
            diagnostic.severity = Severity::Error;
        }
    }
    for diagnostic in &diagnostics {
        writeln!(out, "{diagnostic}")?;
    }
    let Some(loaded) = loaded else {
        return Ok(EXIT_INVALID);
    };
    for line in autopilots(&loaded.config.pools, &resources()) {
        writeln!(out, "{line}")?;
    }
    let pools = match loaded.config.pools.len() {
        1 => "1 pool".to_owned(),
        count => format!("{count} pools"),
    };
    if !loaded.config.skipped.is_empty() {
        let skipped: Vec<String> = loaded.config.skipped.iter().map(Skipped::name).collect();
        let skipped = skipped.join(", ");
        writeln!(out, "{}: {pools}, without {skipped}", path.display())?;
    }
    if diagnostics
        .iter()
        .any(|diagnostic| diagnostic.severity == Severity::Error)
    {
        return Ok(EXIT_INVALID);
    }
    writeln!(out, "{}: configuration is valid: {pools}", path.display())?;
    Ok(0)
}

/// Returns a line for each pool with an autopilot: the number of workers that it begins with, and the number of this
/// configuration before the autopilot.
fn autopilots(pools: &[Arc<Pool>], resources: &Resources) -> Vec<String> {
    let flown: Vec<&Arc<Pool>> = pools.iter().filter(|pool| pool.load.has_autopilot).collect();
    let line = |pool: &&Arc<Pool>| {
        let (begins, most) = (resources.first_number(pool), pool.pm.max_children());
        let limit = pool.retirement.memory_limit;
        let before = workers_before_the_autopilot(resources.memory, flown.len() as u64, limit);
        format!(
            "pool {}: max_children = \"auto\" begins with {begins} and follows the load up to {most}; before the autopilot \
             it was {before}",
            pool.name
        )
    };
    flown.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Load;
    use forkyard_core::config::ProcessManager;

    #[test]
    fn pools_with_the_autopilot_have_the_old_number_and_the_new() {
        let resources = Resources {
            cores: 2.0,
            memory: 4 << 30,
            ..Resources::default()
        };
        let pool = |name: &str, has_autopilot, max_children| {
            Arc::new(Pool {
                name: name.to_owned(),
                pm: ProcessManager::Static { max_children },
                load: Load {
                    has_autopilot,
                    ..Load::default()
                },
                ..Pool::default()
            })
        };
        let pools = [pool("a", true, 512), pool("b", false, 7), pool("c", true, 4)];
        let text = |name, numbers: [u32; 3]| {
            let [begins, most, before] = numbers;
            format!(
                "pool {name}: max_children = \"auto\" begins with {begins} and follows the load up to {most}; before the \
                 autopilot it was {before}"
            )
        };
        let expected = [text("a", [10, 512, 23]), text("c", [4, 4, 23])];
        assert_eq!(autopilots(&pools, &resources), expected);
    }
}
