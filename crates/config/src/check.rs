//! Checks a configuration file.

use std::io::{self, Write};
use std::path::Path;

use super::error::{Diagnostic, Severity};
use super::host::load;
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
