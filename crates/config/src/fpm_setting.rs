//! What is said in files of php-fpm's, under forkyard's own keys.

use super::error::Location;

/// One thing that is said of the daemon or of a pool.
#[derive(Debug, Clone)]
pub struct FpmSetting {
    /// The directive; empty: an option says it, or every file of php-fpm's.
    pub name: &'static str,
    /// The key of a list's entry.
    pub item: Option<String>,
    /// The key in `[global]` or in the pool's table, with dots; empty: there is none.
    pub key: String,
    /// The value. `None`: php-fpm takes what is written as if it were not.
    pub value: Option<toml_edit::Value>,
    /// What of the value is not in it.
    pub cut: Option<&'static str>,
    /// Where it was written; `None`: a default of php-fpm's, or an option.
    pub location: Option<Location>,
}

impl FpmSetting {
    /// What is not written by a directive.
    pub(super) fn fixed(key: &str, value: impl Into<toml_edit::Value>) -> FpmSetting {
        FpmSetting {
            name: "",
            item: None,
            key: key.to_owned(),
            value: Some(value.into()),
            cut: None,
            location: None,
        }
    }
}
