//! The answer to "is this file a valid configuration?".

use std::io::{self, Write};
use std::path::Path;

use super::effects::load;
use super::skip::Skipped;

/// The exit code for a configuration that can't be used (`EX_CONFIG` of sysexits.h).
pub const EXIT_INVALID: u8 = 78;

/// Reads a configuration, writes what was found, one line each, and returns the exit code: 0 or [`EXIT_INVALID`].
pub fn check(path: &Path, out: &mut dyn Write) -> io::Result<u8> {
    match load(path) {
        Ok(loaded) => {
            for warning in &loaded.warnings {
                writeln!(out, "{warning}")?;
            }
            let count = loaded.config.pools.len();
            let pools = if count == 1 {
                "1 pool".to_owned()
            } else {
                format!("{count} pools")
            };
            if !loaded.config.skipped.is_empty() {
                let skipped: Vec<String> = loaded.config.skipped.iter().map(Skipped::name).collect();
                let skipped = skipped.join(", ");
                writeln!(out, "{}: {pools}, without {skipped}", path.display())?;
                return Ok(EXIT_INVALID);
            }
            writeln!(out, "{}: configuration is valid: {pools}", path.display())?;
            Ok(0)
        }
        Err(errors) => {
            for finding in &errors.findings {
                writeln!(out, "{finding}")?;
            }
            Ok(EXIT_INVALID)
        }
    }
}
