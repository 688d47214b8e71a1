//! Settings from php-fpm's files, under forkyard's keys.

use super::error::Location;

#[derive(Debug, Clone)]
pub struct FpmSetting {
    /// The directive. Empty for an option or a fixed value.
    pub name: &'static str,
    pub item: Option<String>,
    /// The dotted key in `[global]` or the pool's table. Empty if there is none.
    pub key: String,
    /// The value. `None` if php-fpm treats it as unset.
    pub value: Option<toml_edit::Value>,
    /// The part of the value that is missing here.
    pub cut: Option<&'static str>,
    /// `None` for a default or an option.
    pub location: Option<Location>,
}

impl FpmSetting {
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
