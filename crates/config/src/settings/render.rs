//! Renders the documents' tables as Markdown.

use super::directive::{Directive, Effect, Form};
use super::row::Setting;
use super::sections::Section;
use super::{directives, of, rows};

/// The table of a section.
pub(super) fn render(section: Section) -> String {
    let mut text =
        String::from("| key | type | default | meaning | in php-fpm |\n| --- | --- | --- | --- | --- |\n");
    for setting in of(section) {
        let Setting {
            key,
            values,
            default,
            meaning,
            ..
        } = setting;
        let name = match setting.directive {
            Some(directive) if directive.name != *key => format!("`{}`", directive.name),
            _ => String::new(),
        };
        let there = joined(&[&name, setting.in_php_fpm]);
        let space = if there.is_empty() { "" } else { " " };
        text.push_str(&format!(
            "| `{key}` | {values} | {default} | {meaning} |{space}{there} |\n"
        ));
    }
    text
}

/// The table of a section that php-fpm has no directives for.
pub(super) fn render_runtime(section: Section) -> String {
    let mut text = String::from("| key | meaning | default |\n| --- | --- | --- |\n");
    for Setting {
        key,
        meaning,
        default,
        ..
    } in of(section)
    {
        let space = if default.is_empty() { "" } else { " " };
        text.push_str(&format!("| `{key}` | {meaning} |{space}{default} |\n"));
    }
    text
}

/// The features of php-fpm that forkyard's configuration lacks.
pub(super) fn render_absent() -> String {
    let mut text = String::from("| php-fpm | instead |\n| --- | --- |\n");
    for setting in rows() {
        if let (Some(directive), Some(absence)) = (setting.directive, setting.absence) {
            text.push_str(&format!("| `{}` | {} |\n", directive.name, absence.instead));
        }
    }
    text
}

/// php-fpm's directives.
pub(super) fn render_fpm() -> String {
    let mut text = String::new();
    for (is_global, title) in [(true, "[global]"), (false, "a pool")] {
        text.push_str(&format!(
            "\n### In {title}\n\n| directive | value | unset | here | meaning |\n"
        ));
        text.push_str("|---|---|---|---|---|\n");
        for (directive, setting) in directives(is_global) {
            text.push_str(&directive_line(directive, setting));
        }
    }
    text
}

fn directive_line(directive: &Directive, setting: &Setting) -> String {
    let value = match directive.form {
        Form::Text | Form::Commas | Form::Blanks | Form::Octal => "text",
        Form::Flag => "boolean",
        Form::Number => "number",
        Form::Time => "time",
        Form::Level => "log level",
        Form::Facility => "facility",
        Form::Core => "number or `unlimited`",
        Form::Manager => "`static`, `dynamic`, `ondemand`",
        Form::List => "list",
    };
    let default = match directive.default {
        "" | "64" => "–".to_owned(),
        default => format!("`{default}`"),
    };
    let effect = match directive.effect {
        Effect::Same => "as in php-fpm",
        Effect::Needless => "not needed",
    };
    let absence = match directive.effect {
        Effect::Needless => setting.absence.map_or("", |absence| absence.instead),
        Effect::Same => "",
    };
    let meaning = in_php_fpm(setting.meaning, setting.section == Section::Global);
    let meaning = joined(&[&meaning, absence, directive.note]);
    format!(
        "| `{}` | {value} | {default} | {effect} | {meaning} |\n",
        directive.name
    )
}

fn joined(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

/// Replaces keys in backquotes by the directives of php-fpm's global section (`is_global`) or pools.
pub(super) fn in_php_fpm(text: &str, is_global: bool) -> String {
    let renamed = |(at, part): (usize, &str)| {
        let mut all = directives(is_global);
        let found = all.find(|(_, setting)| at % 2 == 1 && setting.key == part);
        found.map_or(part, |(directive, _)| directive.name).to_owned()
    };
    let parts: Vec<String> = text.split('`').enumerate().map(renamed).collect();
    parts.join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_names_of_the_file_that_they_are_told_for() {
        let text = "needs `max_children`, not max_children; `slowlog`";
        let pool = "needs `pm.max_children`, not max_children; `slowlog`";
        assert_eq!(in_php_fpm(text, false), pool);
        assert_eq!(in_php_fpm(text, true), text);
    }

    #[test]
    fn the_documentation_shows_the_directives() {
        let text = include_str!("../../../../docs/reference/forkyard-fpm.md");
        let table = render_fpm();
        assert!(
            text.ends_with(&table),
            "docs/reference/forkyard-fpm.md has to end with what `forkyard settings fpm` prints:\n{table}"
        );
    }
}
