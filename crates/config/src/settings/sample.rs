//! The samples: a TOML file with every key, and a php-fpm file with every directive.

use super::directive::{Directive, Effect, Form, Shown};
use super::render::in_php_fpm;
use super::row::{Sample, Setting};
use super::sections::Section;
use super::{directives, of};

/// The width of a comment, in columns.
const WIDTH: usize = 119;

const TOML_HEAD: &str = r##"# forkyard's configuration, with every key there is.
#
# A key that starts a line with # and no blank is optional; the value shown is its default, or an example where it says
# so. Check a change before you use it:  forkyard check -c /etc/forkyard/forkyard.toml
#
# Durations: whole seconds, or a string with a unit: "500ms", "10s", "5m", "2h", "1d".
# Sizes:     bytes, or a string with a unit: "64K", "1M", "2G".
# $pool in any string of a pool is replaced by the pool's name.
"##;

const FPM_HEAD: &str = "\
; php-fpm's configuration, with every directive, as forkyard-fpm takes it.
;
; A directive that starts a line with ; and no blank is optional; the value shown is the one that it has if it is not
; written, or an example where it says so. Check a change before you use it:  forkyard-fpm -t -y FILE
;
; Times: seconds, or a number with s, m, h or d. $pool in a pool stands for the pool's name.
; More files with pools:  include = /etc/php/8.2/fpm/pool.d/*.conf
";

/// conf/forkyard.toml.
pub fn toml() -> String {
    let mut text = format!("{TOML_HEAD}\n[global]\n");
    keys(Section::Global, &mut text);
    text.push_str(
        "\n\n# A pool: workers that share one listening socket and run one application. At least one is needed.\n\
         [pool.www]\n",
    );
    keys(Section::Pool, &mut text);
    text.push_str("\n[pool.www.application]\n");
    keys(Section::Php, &mut text);
    text.push_str(
        "\n\n# A second pool, with the short form of listen. Its name would be \"local\".\n\
         #[pool.local]\n#listen = \"127.0.0.1:9000\"\n#user = \"www-data\"\n#pm = \"ondemand\"\n\
         #max_children = 4\n#application = { runtime = \"php\", version = \"8.2\" }\n",
    );
    // Small ones first.
    for section in Section::ALL.into_iter().rev() {
        let Some((what, name, runtime)) = section.about().sample else {
            continue;
        };
        text.push_str(&format!(
            "\n\n# A pool of {what}. See docs/reference/runtimes.md.\n#[pool.{name}]\n#listen = \"/run/forkyard-$pool.sock\"\n\
             #user = \"www-data\"\n#pm = \"ondemand\"\n#max_children = 4\n\n\
             #[pool.{name}.application]\n#runtime = \"{runtime}\"\n"
        ));
        keys(section, &mut text);
    }
    text.push_str(
        "\n\n# A pool of a program that speaks HTTP and that forkyard does not start: an address and port, a port of this\n\
         # machine, or the path of a unix socket.\n\
         #[pool.elsewhere]\n#listen = \"/run/forkyard-$pool.sock\"\n#user = \"www-data\"\n#pm = \"ondemand\"\n\
         #max_children = 4\n#application = { runtime = \"http\", address = \"127.0.0.1:3000\" }\n",
    );
    text.push_str(
        "\n\n# A pool of many applications. See docs/reference/application-pool.md.\n#[pool.sites]\n\
         #listen = \"/run/forkyard-$pool.sock\"\n#routing = \"application\"\n\n#[pool.sites.applications]\n",
    );
    keys(Section::Applications, &mut text);
    text.push_str("\n\n# Background jobs. See docs/reference/jobs.md.\n#[jobs]\n");
    keys(Section::Jobs, &mut text);
    text.push_str("\n\n#[jobs.queue.mail]\n");
    keys(Section::JobQueue, &mut text);
    text.push_str("\n\n#[jobs.schedule.digest]\n");
    keys(Section::JobSchedule, &mut text);
    text
}

fn keys(section: Section, text: &mut String) {
    for setting in of(section) {
        let (mark, value) = match setting.sample {
            Sample::Default => ("#", setting.literal().unwrap_or_default()),
            Sample::Off(value) => ("#", value),
            Sample::On(value) => ("", value),
            Sample::Beside(value) => ("# ", value),
            Sample::Nowhere => continue,
        };
        text.push('\n');
        comment("#", &remark(setting), text);
        text.push_str(&format!("{mark}{} = {value}\n", setting.key));
    }
}

/// The comment above a key.
fn remark(setting: &Setting) -> String {
    let mut said = sentence(setting.meaning);
    if setting.values.contains(|c: char| c == '"' || c.is_ascii_digit()) {
        said.push_str(&format!(" Values: {}.", plain(setting.values)));
    }
    let default = plain(setting.default);
    let is_required = default.starts_with("required");
    match setting.sample {
        Sample::Default | Sample::Beside(_) | Sample::Nowhere => {}
        Sample::On(value) | Sample::Off(value) if setting.literal() == Some(value) => {}
        _ if is_required => said.push_str(&format!(" {}", sentence(&default))),
        Sample::On(_) => said.push_str(&format!(" Default: {default}.")),
        Sample::Off(_) if default.is_empty() => said.push_str(" Example."),
        Sample::Off(_) => said.push_str(&format!(" Example; default: {default}.")),
    }
    said
}

/// conf/php-fpm.conf.
pub fn php_fpm() -> String {
    let mut text = format!("{FPM_HEAD}\n[global]\n");
    lines(true, &mut text);
    text.push_str("\n\n; A pool. Its name is \"www\".\n[www]\n");
    lines(false, &mut text);
    text
}

fn lines(is_global: bool, text: &mut String) {
    for (directive, setting) in directives(is_global) {
        let mut said = sentence(&in_php_fpm(setting.meaning, is_global));
        if let (Effect::Needless, Some(absence)) = (directive.effect, setting.absence) {
            said.push_str(&format!(" Not needed: {}.", plain(absence.instead)));
        }
        if !directive.note.is_empty() {
            said.push_str(&format!(" {}", sentence(directive.note)));
        }
        let (mark, value) = match setting.sample {
            Sample::On(value) | Sample::Beside(value) => ("", Some(value)),
            Sample::Off(value) => (";", Some(value)),
            Sample::Default | Sample::Nowhere => (";", None),
        };
        let has_default = !directive.default.is_empty() && directive.shown != Shown::Priority;
        if mark == ";" && value.is_some() {
            said.push_str(" Example.");
        }
        text.push('\n');
        comment(";", &said, text);
        match value.or(setting.literal()) {
            _ if value.is_none() && has_default => {
                text.push_str(&format!("{mark}{} = {}\n", directive.name, directive.default));
            }
            value => {
                for line in ini(directive, value.unwrap_or_default()) {
                    text.push_str(&format!("{mark}{line}\n"));
                }
            }
        }
    }
}

/// Converts a TOML value to php-fpm's lines.
fn ini(directive: &Directive, value: &str) -> Vec<String> {
    let name = directive.name;
    let table = toml::from_str::<toml::Table>(&format!("value = {value}")).unwrap_or_default();
    let is_list = directive.form == Form::List;
    match table.get("value") {
        Some(toml::Value::Table(entries)) => entries
            .iter()
            .map(|(key, value)| format!("{name}[{key}] = {}", ini_literal(value)))
            .collect(),
        Some(toml::Value::Array(items)) if is_list => items
            .iter()
            .map(|item| format!("{name}[] = {}", ini_literal(item)))
            .collect(),
        Some(toml::Value::Array(items)) => {
            let by = if directive.form == Form::Blanks { " " } else { "," };
            let words: Vec<String> = items.iter().map(ini_literal).collect();
            vec![format!("{name} = {}", words.join(by)).trim_end().to_owned()]
        }
        Some(value) => vec![format!("{name} = {}", ini_literal(value))],
        None => vec![format!("{name} =")],
    }
}

fn ini_literal(value: &toml::Value) -> String {
    match value {
        toml::Value::Boolean(true) => "yes".to_owned(),
        toml::Value::Boolean(false) => "no".to_owned(),
        toml::Value::String(text) => {
            let is_bare = text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._/:$-".contains(c));
            if is_bare {
                text.clone()
            } else {
                format!("\"{}\"", text.replace('"', "\\\""))
            }
        }
        other => other.to_string(),
    }
}

/// Removes Markdown from a text. A link relative to `docs/reference/` becomes the document's path.
fn plain(text: &str) -> String {
    let mut rest = text.replace('`', "");
    let mut done = String::new();
    while let Some((before, after)) = rest.split_once("](") {
        let (Some((before, name)), Some((target, after))) = (before.rsplit_once('['), after.split_once(')'))
        else {
            break;
        };
        let file = target.split('#').next().unwrap_or(target);
        let path = match file.strip_prefix("../") {
            Some(path) => format!("docs/{path}"),
            None => format!("docs/reference/{file}"),
        };
        done.push_str(before);
        if before.ends_with("see ") || before.ends_with('(') {
            done.push_str(&path);
        } else {
            done.push_str(&format!("{name} ({path})"));
        }
        rest = after.to_owned();
    }
    done + &rest
}

/// Capitalises a text that begins with a word, and adds a full stop.
fn sentence(text: &str) -> String {
    let word = text.split([' ', ',', ';', ':']).next().unwrap_or_default();
    let text = plain(text);
    if word.chars().all(|c| c.is_ascii_lowercase()) && !word.is_empty() {
        let (first, rest) = text.split_at(1);
        return format!("{}{rest}.", first.to_ascii_uppercase());
    }
    format!("{text}.")
}

/// Wraps a text into comment lines.
fn comment(mark: &str, said: &str, text: &mut String) {
    let mut line = mark.to_owned();
    for word in said.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            mark.clone_into(&mut line);
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}
