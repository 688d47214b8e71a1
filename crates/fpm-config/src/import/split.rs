//! Splits a configuration into several files.

use std::path::Path;
use toml_edit::{Array, DocumentMut, Item, Table, TomlError};

/// Returns each pool's text by name, and the rest without a name. The rest includes the directory's files.
///
/// # Errors
/// The text is not TOML.
pub fn apart(text: &str, directory: &Path) -> Result<Vec<(Option<String>, String)>, TomlError> {
    let mut whole: DocumentMut = text.parse()?;
    let pools = whole
        .remove("pool")
        .and_then(|pools| pools.into_table().ok())
        .unwrap_or_default();
    let mut parts = Vec::new();
    for (name, pool) in pools {
        let mut outer = Table::new();
        outer.set_implicit(true);
        outer.insert(&name, pool);
        let mut part = DocumentMut::new();
        part.insert("pool", Item::Table(outer));
        parts.push((Some(name), part.to_string().trim_start().to_owned()));
    }
    let pattern = directory.join("*.toml").to_string_lossy().into_owned();
    whole["global"]["include"] = toml_edit::value(Array::from_iter([pattern]));
    parts.push((None, whole.to_string()));
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pool_is_a_file_and_global_includes_them() {
        let text = "# All.\n[global]\nlog_level = \"error\"\n\n# One.\n[pool.a]\npm = \"static\"\n\n[pool.a.application]\n\
                    runtime = \"php\"\n\n[pool.\"b c\"]\npm = \"static\"\n";
        let parts = apart(text, Path::new("/etc/pools")).expect("TOML");
        let names: Vec<Option<&str>> = parts.iter().map(|(name, _)| name.as_deref()).collect();
        assert_eq!(names, [Some("a"), Some("b c"), None]);
        assert!(
            parts[0].1.contains("# One.\n[pool.a]\npm = \"static\"\n"),
            "{}",
            parts[0].1
        );
        assert!(
            parts[0].1.contains("[pool.a.application]\nruntime = \"php\"\n"),
            "{}",
            parts[0].1
        );
        assert!(
            parts[2].1.contains("include = [\"/etc/pools/*.toml\"]"),
            "{}",
            parts[2].1
        );
        assert!(!parts[2].1.contains("pool.a"), "{}", parts[2].1);
    }
}
