//! Which php.ini settings a request may set in `PHP_VALUE` and `PHP_ADMIN_VALUE`.
//!
//! Any program that can connect to a pool's socket can send any parameter. If it could set `auto_prepend_file` or
//! `error_log`, it could run code as the pool's user.

use forkyard_config::RequestSettings;

/// Limits, display and session lifetimes, which web servers do send. None names an output file, a program, a function
/// or code. `open_basedir` and `disable_functions` are allowed because a site may rely on its web server to send them.
pub const HARMLESS: &[&str] = &[
    "date.timezone",
    "default_charset",
    "disable_functions",
    "display_errors",
    "display_startup_errors",
    "error_reporting",
    "expose_php",
    "html_errors",
    "ignore_user_abort",
    "log_errors",
    "max_execution_time",
    "max_file_uploads",
    "max_input_nesting_level",
    "max_input_time",
    "max_input_vars",
    "memory_limit",
    "open_basedir",
    "output_buffering",
    "post_max_size",
    "precision",
    "serialize_precision",
    "session.cache_expire",
    "session.cache_limiter",
    "session.cookie_domain",
    "session.cookie_httponly",
    "session.cookie_lifetime",
    "session.cookie_path",
    "session.cookie_samesite",
    "session.cookie_secure",
    "session.gc_divisor",
    "session.gc_maxlifetime",
    "session.gc_probability",
    "session.name",
    "session.use_strict_mode",
    "short_open_tag",
    "upload_max_filesize",
    "zlib.output_compression",
    "zlib.output_compression_level",
];

const REMEMBERED: usize = 32;
const SHOWN: usize = 80;

/// A pool's rule.
#[derive(Debug, Clone)]
pub struct Rule {
    settings: RequestSettings,
    held: Vec<String>,
    reported: Vec<String>,
}

/// What to do with a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed.
    Set,
    /// Refused; log this text unless it is empty (already logged).
    Refuse(String),
}

impl Rule {
    /// Creates the rule. `held`: the names in the pool's `php_admin_value`.
    pub fn new(settings: RequestSettings, held: Vec<String>) -> Rule {
        Rule {
            settings,
            held,
            reported: Vec::new(),
        }
    }

    /// Whether all settings are allowed, so that no name needs a lookup.
    pub fn is_open(&self) -> bool {
        self.settings == RequestSettings::All
    }

    /// Checks one setting.
    pub fn judge(&mut self, name: &str) -> Verdict {
        let why = match &self.settings {
            RequestSettings::All => return Verdict::Set,
            RequestSettings::Only(names) if names.iter().any(|known| known == name) => return Verdict::Set,
            RequestSettings::Harmless if self.held.iter().any(|known| known == name) => {
                "the pool's php_admin_value has it"
            }
            RequestSettings::Harmless if HARMLESS.contains(&name) => return Verdict::Set,
            RequestSettings::Harmless => "it is not among the harmless ones",
            RequestSettings::Only(_) => "request_settings does not list it",
            RequestSettings::None => "request_settings is \"none\"",
        };
        Verdict::Refuse(self.report(name, why))
    }

    /// The log line, once per name and limited in number: a client that sends thousands of names must not fill the log.
    fn report(&mut self, name: &str, why: &str) -> String {
        if self.reported.len() >= REMEMBERED || self.reported.iter().any(|known| known == name) {
            return String::new();
        }
        self.reported.push(name.to_owned());
        let shown: String = name.chars().take(SHOWN).collect();
        format!(
            "refused the setting '{shown}' that came with a request (PHP_VALUE, PHP_ADMIN_VALUE): {why}. If \
             the web server is meant to send it, set it in the pool or list it in request_settings; if not, \
             find out who reaches the pool's socket. This worker logs this once"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{HARMLESS, Rule, Verdict};
    use forkyard_config::RequestSettings;

    fn rule(settings: RequestSettings) -> Rule {
        Rule::new(settings, vec!["memory_limit".into(), "auto_prepend_file".into()])
    }

    fn refused(rule: &mut Rule, name: &str) -> bool {
        matches!(rule.judge(name), Verdict::Refuse(_))
    }

    #[test]
    fn all_is_php_fpms_way() {
        let mut rule = rule(RequestSettings::All);
        assert!(rule.is_open());
        assert!(!refused(&mut rule, "auto_prepend_file"));
    }

    #[test]
    fn harmless_ones_pass_unless_the_pool_holds_them() {
        let mut rule = rule(RequestSettings::Harmless);
        assert!(!rule.is_open());
        assert!(!refused(&mut rule, "upload_max_filesize"));
        assert!(refused(&mut rule, "memory_limit"), "php_admin_value has it");
        for name in [
            "auto_prepend_file",
            "auto_append_file",
            "allow_url_include",
            "error_log",
            "extension",
            "include_path",
            "output_handler",
            "sendmail_path",
            "session.save_path",
            "unserialize_callback_func",
            "user_ini.filename",
            "Auto_Prepend_File",
            "",
        ] {
            assert!(refused(&mut rule, name), "{name}");
        }
    }

    #[test]
    fn a_list_is_what_it_says_and_none_is_none() {
        let mut listed = rule(RequestSettings::Only(vec!["auto_prepend_file".into()]));
        assert!(!refused(&mut listed, "auto_prepend_file"));
        assert!(refused(&mut listed, "upload_max_filesize"));
        let mut none = rule(RequestSettings::None);
        assert!(HARMLESS.iter().all(|name| refused(&mut none, name)));
    }

    #[test]
    fn a_name_is_reported_once_and_names_are_not_remembered_for_ever() {
        let mut rule = rule(RequestSettings::None);
        let said = |verdict| matches!(verdict, Verdict::Refuse(text) if !text.is_empty());
        assert!(said(rule.judge("a")));
        assert!(!said(rule.judge("a")));
        let lines = (0..1000).filter(|n| said(rule.judge(&n.to_string()))).count();
        assert_eq!(lines, 31);
    }

    #[test]
    fn the_list_is_sorted() {
        assert!(HARMLESS.is_sorted());
    }
}
