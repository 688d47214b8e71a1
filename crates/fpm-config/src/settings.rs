//! Maps php-fpm's directives to forkyard's keys, for the drafts and for imports.

use super::Options;
use super::journal::Failed;
use super::parse::PoolText;
use super::validate::Context;
use super::values::{Item, NO_PRIORITY, Value, Values, facility_name};
use forkyard_config::php_fpm::FpmSetting;
use forkyard_config::settings::{Directive, Form};
use forkyard_config::{Preloading, RequestSettings};
use toml_edit::{Array, Value as Toml};

/// The allowed php.ini settings in requests. Not passed to PHP.
const REQUEST_SETTINGS: &str = "forkyard.request_settings";
const PRELOADER: &str = "forkyard.preloader";
/// Directives with a meaning for empty text.
const MAY_BE_EMPTY: [&str; 2] = ["syslog.ident", "access.format"];
const LONGEST: i32 = 3650 * 86_400;

pub(super) fn global(values: &Values, options: &Options) -> Vec<FpmSetting> {
    let mut said = Vec::new();
    if options.allow_root {
        said.push(fixed("allow_root", true));
    }
    section(values, &mut said);
    said
}

pub(super) fn pool(pool: &PoolText, context: &mut Context<'_>) -> Result<Vec<FpmSetting>, Failed> {
    let options = context.options;
    let mut said = vec![
        // php-fpm's users rely on a fresh OPcache after a reload.
        fixed("reload", "always"),
        fixed("abandoned", "run"),
        fixed("application.runtime", "php"),
        fixed("application.version", options.version()),
    ];
    if let Some(path) = &options.php_ini {
        said.push(fixed("application.php_ini", &*path.to_string_lossy()));
    }
    let rule = request_settings(pool, context)?;
    said.push(fixed("application.request_settings", rule));
    if let Some(word) = preloader(pool, context)? {
        said.push(fixed("application.preloader", word));
    }
    section(&pool.values, &mut said);
    Ok(said)
}

fn section(values: &Values, said: &mut Vec<FpmSetting>) {
    for (directive, setting, value, location) in values.given() {
        let one = |value: Toml| FpmSetting {
            name: directive.name,
            key: setting.path(),
            location: location.cloned(),
            ..fixed("", value)
        };
        match value {
            Value::List(list) if setting.values == "list" => {
                let texts: Array = list.iter().map(|item| item.value.as_str()).collect();
                said.push(one(texts.into()));
            }
            Value::List(list) => said.extend(list.iter().map(|item| FpmSetting {
                item: Some(item.key.clone()),
                location: Some(item.location.clone()),
                ..one(item.value.as_str().into())
            })),
            Value::Time(seconds) if *seconds > LONGEST => said.push(FpmSetting {
                cut: Some("it is cut to the longest time, ten years"),
                ..one("3650d".into())
            }),
            value => said.push(FpmSetting {
                value: plain(directive, value),
                ..one("".into())
            }),
        }
    }
}

fn plain(directive: &Directive, value: &Value) -> Option<Toml> {
    Some(match value {
        Value::Text(None) | Value::Level(None) | Value::Manager(None) | Value::Core(0) | Value::List(_) => {
            return None;
        }
        Value::Text(Some(text)) => return worded(directive, text),
        Value::Flag(flag) => (*flag).into(),
        Value::Number(number) if is_unset(directive.name, *number) => return None,
        Value::Number(number) | Value::Core(number @ 1..) => i64::from(*number).into(),
        Value::Core(_) => "unlimited".into(),
        Value::Time(seconds) => duration((*seconds).max(0)).into(),
        Value::Level(Some(level)) => format!("{level:?}").to_ascii_lowercase().into(),
        Value::Facility(number) => facility_name(*number).into(),
        Value::Manager(Some(manager)) => manager.name().into(),
    })
}

fn worded(directive: &Directive, text: &str) -> Option<Toml> {
    let words = |by: &[char]| -> Array { text.split(by).filter(|word| !word.is_empty()).collect() };
    match directive.form {
        Form::Blanks => Some(words(&[' ', '\t']).into()),
        // An empty text sets no list of clients.
        Form::Commas if text.is_empty() && directive.name == "listen.allowed_clients" => None,
        Form::Commas => Some(words(&[',']).into()),
        Form::Octal if text.is_empty() => Some("0660".into()),
        Form::Octal => Some(format!("{:04o}", octal(text) & 0o777).into()),
        _ if text.is_empty() && !MAY_BE_EMPTY.contains(&directive.name) => None,
        _ if directive.name == "error_log" && text.eq_ignore_ascii_case("syslog") => Some("syslog".into()),
        _ => Some(text.into()),
    }
}

pub(super) fn octal(text: &str) -> u32 {
    let digits = text.bytes().take_while(|byte| (b'0'..=b'7').contains(byte));
    digits.fold(0, |mode: u32, digit| {
        mode.wrapping_mul(8).wrapping_add(u32::from(digit - b'0')) & 0o7777
    })
}

fn fixed(key: &str, value: impl Into<Toml>) -> FpmSetting {
    FpmSetting {
        name: "",
        item: None,
        key: key.to_owned(),
        value: Some(value.into()),
        cut: None,
        location: None,
    }
}

/// php-fpm's values for "unset".
fn is_unset(name: &str, number: i32) -> bool {
    match name {
        "process.priority" => number == NO_PRIORITY,
        "pm.start_servers" | "listen.backlog" => false,
        _ => number <= 0,
    }
}

fn duration(seconds: i32) -> String {
    match seconds {
        0 => "0s".to_owned(),
        seconds if seconds % 86_400 == 0 => format!("{}d", seconds / 86_400),
        seconds if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

/// `php_admin_value[forkyard.request_settings]`, or `-d forkyard.request_settings`, or php-fpm's behavior. Not a
/// directive, so that php-fpm accepts the same file.
fn request_settings(pool: &PoolText, context: &mut Context<'_>) -> Result<Toml, Failed> {
    let Some(value) = of_ours(REQUEST_SETTINGS, pool, context) else {
        return Ok("all".into());
    };
    // A bare `none` is empty in PHP's language.
    if value.is_empty() {
        return Ok("none".into());
    }
    if RequestSettings::from_word(&value).is_some() {
        return Ok(value.into());
    }
    let names: Array = value.split([',', ' ']).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        let name = &pool.name;
        let text = format!(
            "[pool {name}] {REQUEST_SETTINGS}: write all, harmless, none, or names with commas between them"
        );
        return Err(context.journal.error(text));
    }
    Ok(names.into())
}

/// `php_admin_value[forkyard.preloader]`, or `-d forkyard.preloader`, or `None`.
fn preloader(pool: &PoolText, context: &mut Context<'_>) -> Result<Option<String>, Failed> {
    let word = of_ours(PRELOADER, pool, context);
    if word.as_deref().map(Preloading::from_word) == Some(None) {
        let name = &pool.name;
        let text =
            format!("[pool {name}] {PRELOADER}: write own, or zygote, which has taken the place of shared");
        return Err(context.journal.error(text));
    }
    Ok(word)
}

/// Whether a php.ini name is one of forkyard's settings.
pub(super) fn is_ours(name: &str) -> bool {
    name == REQUEST_SETTINGS || name == PRELOADER
}

fn of_ours(wanted: &str, pool: &PoolText, context: &Context<'_>) -> Option<String> {
    let items = pool.values.list("php_admin_value").iter();
    let mut own = items.map(|Item { key, value, .. }| (key, value));
    let mut defined = context.options.defines.iter().map(|(key, value)| (key, value));
    let is_it = |(key, _): &(&String, &String)| *key == wanted;
    let found = own.find(is_it).or_else(|| defined.find(is_it));
    found.map(|(_, value)| value.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{Alone, mistake};
    use forkyard_config::settings::{self, Section};
    use forkyard_config::{Location, parse};
    use std::path::Path;

    fn example(form: Form) -> &'static str {
        match form {
            Form::Text | Form::Commas | Form::Blanks | Form::List => "a",
            Form::Octal => "0600",
            Form::Flag => "yes",
            Form::Number | Form::Time => "5",
            Form::Level => "error",
            Form::Facility => "local3",
            Form::Core => "unlimited",
            Form::Manager => "static",
        }
    }

    /// A table row and a draft field are enough for a directive.
    #[test]
    fn what_every_directive_says_is_read_into_its_draft() {
        let location = Location {
            file: Path::new("/x.conf").into(),
            line: 7,
            column: 1,
            order: 0,
        };
        for (is_global, section) in [(true, Section::Global), (false, Section::Pool)] {
            for (directive, setting) in settings::directives(is_global).filter(|(_, s)| !s.key.is_empty()) {
                let mut values = Values::new(section);
                let text = example(directive.form);
                if directive.form == Form::List {
                    let [key, value] = [text, text].map(str::to_owned);
                    let location = location.clone();
                    values.add(directive.name, Item { key, value, location });
                } else {
                    let written = values.write(directive.name, text, Some("www"), &location);
                    assert_eq!(written, Some(Ok(())), "{}", directive.name);
                }
                let mut said = Vec::new();
                super::section(&values, &mut said);
                let [said] = &said[..] else {
                    panic!("{said:?}");
                };
                assert_eq!(
                    (said.key.as_str(), &said.location),
                    (&*setting.path(), &Some(location.clone()))
                );
                let value = said.value.as_ref().expect("a value");
                let item = said
                    .item
                    .as_ref()
                    .map_or(String::new(), |item| format!(".{item}"));
                let table = if is_global {
                    "[global]"
                } else {
                    "[pool.www]\napplication.runtime = \"php\""
                };
                let text = format!("{table}\n{}{item} = {value}\n", said.key);
                if let Err(errors) = parse(&text, Path::new("x.toml"), &Alone::with(b"")) {
                    assert_eq!(mistake(&errors), None, "{text}");
                }
            }
        }
    }
}
