//! Settings of `[global]` for supervision and monitoring of the daemon.

use super::row::Section::Global;
use super::row::{Setting, key};

#[rustfmt::skip]
pub(super) const ROWS: &[Setting] = &[
    key(Global, "on_sigterm", r#"`"terminate"`, `"finish"`"#, r#"`"terminate"`"#,
        "what SIGTERM means: with `terminate` requests that run end, with `finish` it is taken as SIGQUIT, and they are finished; a \
         second SIGTERM ends them")
        .in_php_fpm("`terminate` always"),
];
