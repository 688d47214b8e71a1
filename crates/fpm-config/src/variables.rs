//! Environment variables over php-fpm's files. Each acts like a line at the end of its section, so php-fpm's rules
//! apply and `-t` and `-tt` show it. Variables without a directive set the key later.

use super::journal::{Failed, Journal};
use super::parse::Written;
use super::values::{Item, Values};
use forkyard_config::overrides::Overrides;
use forkyard_config::settings::Form;

pub(super) fn write_over(
    written: &mut Written,
    overrides: &Overrides,
    journal: &mut Journal,
) -> Result<(), Failed> {
    section(&mut written.global, None, overrides, journal)?;
    for pool in &mut written.pools {
        section(&mut pool.values, Some(&pool.name), overrides, journal)?;
    }
    Ok(())
}

fn section(
    values: &mut Values,
    pool: Option<&str>,
    overrides: &Overrides,
    journal: &mut Journal,
) -> Result<(), Failed> {
    for one in overrides.for_table(pool) {
        let Some((directive, setting, entry)) = one.directive() else {
            continue;
        };
        let location = one.location();
        let item = |value: String| Item {
            key: entry.clone(),
            value,
            location: location.clone(),
        };
        let several = texts(&one.text);
        match directive.form {
            Form::List if setting.values == "list" => {
                let list = several.unwrap_or_else(|| vec![one.text.clone()]);
                values.replace(directive.name, list.into_iter().map(item).collect());
            }
            Form::List => values.put_first(directive.name, item(one.text.clone())),
            form => {
                let between = if form == Form::Commas { "," } else { " " };
                let text = several.map_or_else(|| one.text.clone(), |list| list.join(between));
                if let Some(Err(problem)) = values.write(directive.name, &text, pool, &location) {
                    let name = location.file.display();
                    let text = format!(
                        "[{name}] unable to parse value '{text}' for entry '{}': {problem}",
                        directive.name
                    );
                    return Err(journal.error(text));
                }
            }
        }
    }
    Ok(())
}

fn texts(text: &str) -> Option<Vec<String>> {
    let list = text.parse::<toml_edit::Value>().ok()?;
    let texts = list
        .as_array()?
        .iter()
        .map(|item| item.as_str().map(str::to_owned));
    texts.collect()
}
