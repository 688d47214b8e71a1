//! The JSON schema of the configuration, for editors: draft 4, which TOML language servers support.

use super::of;
use super::row::Setting;
use super::sections::{Section, of_runtime};
use forkyard_protocol::runtimes::{Kind, RUNTIMES, RuntimeTraits};
use serde_json::{Map, Value, json};

/// The schema of `forkyard.toml`, and of the files that it includes.
pub fn schema() -> Value {
    let own = of(Section::Pool).filter(|setting| !setting.key.starts_with("application."));
    let mut pool = Table::with(own);
    pool.put("application", json!({ "anyOf": applications() }));
    let of_many = Table::with(of(Section::Applications));
    pool.put("applications", of_many.object("The applications of the pool."));
    let mut pool = pool.object("A pool: workers that share one listening socket.");
    pool["required"] = json!(["listen"]);
    let global = Table::with(of(Section::Global));
    let named =
        |section| json!({ "type": "object", "additionalProperties": Table::with(of(section)).object("") });
    let mut jobs = Table::with(of(Section::Jobs));
    jobs.put("queue", named(Section::JobQueue));
    jobs.put("schedule", named(Section::JobSchedule));
    json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": "forkyard",
        "description": "The configuration of forkyard",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "global": global.object("The daemon itself."),
            "pool": { "type": "object", "additionalProperties": { "$ref": "#/definitions/pool" } },
            "jobs": jobs.object("Background jobs."),
        },
        "definitions": { "pool": pool },
    })
}

/// The schemas of an application's table.
fn applications() -> Vec<Value> {
    let application = |runtime: &RuntimeTraits| {
        let mut table = Table::with(of_runtime(runtime.kind).into_iter().flat_map(of));
        table.put("runtime", json!({ "enum": [runtime.name] }));
        let mut object = table.object(&format!("An application of the runtime {}.", runtime.name));
        // PHP applications of an application pool need no runtime.
        if runtime.kind != Kind::Php {
            object["required"] = json!(["runtime"]);
        }
        object
    };
    RUNTIMES.iter().map(application).collect()
}

/// The keys of a table; a key with dots belongs to an inner table.
#[derive(Default)]
struct Table {
    own: Vec<(String, Value)>,
    within: Vec<(String, Table)>,
}

impl Table {
    fn with(settings: impl Iterator<Item = &'static Setting>) -> Table {
        let mut table = Table::default();
        settings.for_each(|setting| table.add_below(setting.key, setting));
        table
    }

    fn add_below(&mut self, key: &str, setting: &Setting) {
        let Some((table, rest)) = key.split_once('.') else {
            return self.put(key, described(setting));
        };
        let at = self.within.iter().position(|(name, _)| name == table);
        let at = at.unwrap_or_else(|| {
            self.within.push((table.to_owned(), Table::default()));
            self.within.len() - 1
        });
        self.within[at].1.add_below(rest, setting);
    }

    fn put(&mut self, key: &str, value: Value) {
        self.own.retain(|(name, _)| name != key);
        self.own.push((key.to_owned(), value));
    }

    fn object(self, description: &str) -> Value {
        let mut properties: Map<String, Value> = self.own.into_iter().collect();
        for (name, table) in self.within {
            let table = table.object("");
            // One value, or a table with several.
            let value = match properties.remove(&name) {
                Some(one) => json!({ "anyOf": [one, table] }),
                None => table,
            };
            properties.insert(name, value);
        }
        let mut object = json!({ "type": "object", "additionalProperties": false, "properties": properties });
        if !description.is_empty() {
            object["description"] = json!(description);
        }
        object
    }
}

/// The form, meaning and default of a setting.
fn described(setting: &Setting) -> Value {
    let mut value = form(setting.values);
    value["description"] = json!(setting.meaning);
    let literal = setting.literal();
    let written = literal.and_then(|text| toml::from_str::<toml::Table>(&format!("value = {text}")).ok());
    if let Some(default) = written.and_then(|table| table.get("value").cloned()) {
        value["default"] = json!(default);
    }
    value
}

/// Converts the form in the table of settings to a schema.
fn form(values: &str) -> Value {
    let words: Vec<&str> = values
        .split("`\"")
        .skip(1)
        .filter_map(|rest| rest.split("\"`").next())
        .collect();
    let or_word = |form: Value| match words.as_slice() {
        [] => form,
        words => json!({ "anyOf": [form, { "enum": words }] }),
    };
    let first = values.split([',', ' ']).next().unwrap_or_default();
    match first {
        "flag" => or_word(json!({ "type": "boolean" })),
        "number" if values.contains("array") => {
            let number = json!({ "type": "integer", "minimum": 0 });
            json!({ "anyOf": [number, { "type": "array", "items": number }] })
        }
        "number" => or_word(number(values)),
        "size" => {
            let text = json!({ "type": "string", "pattern": "^[0-9]+[KMGkmg]?$" });
            // The ends of a range are also sizes.
            let named: Vec<&&str> = words
                .iter()
                .filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()))
                .collect();
            let integer = json!({ "type": "integer", "minimum": 0 });
            match named.as_slice() {
                [] => json!({ "anyOf": [integer, text] }),
                named => json!({ "anyOf": [integer, text, { "enum": named }] }),
            }
        }
        "duration" => json!({ "anyOf": [
            { "type": "integer", "minimum": 0 },
            { "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)?$" },
        ] }),
        "list" => json!({ "type": "array", "items": { "type": "string" } }),
        "table" => json!({ "type": "object" }),
        _ if values.starts_with('`') && values.contains("list") => {
            json!({ "anyOf": [{ "enum": words }, { "type": "array", "items": { "type": "string" } }] })
        }
        _ if values.starts_with('`') => json!({ "enum": words }),
        // Paths, names, commands, octal digits.
        _ => json!({ "type": "string" }),
    }
}

/// Parses `number, 1 to 256` or `number, 1 or more`; without a range, no negative numbers.
fn number(values: &str) -> Value {
    let mut value = json!({ "type": "integer", "minimum": 0 });
    let range = values.split_once(", ").map_or("", |(_, range)| range);
    let mut parts = range.split([' ', ',']);
    let least = parts.next().and_then(|part| part.parse::<i64>().ok());
    let Some(least) = least else { return value };
    value["minimum"] = json!(least);
    if parts.next() == Some("to") {
        if let Some(most) = parts.next().and_then(|part| part.parse::<i64>().ok()) {
            value["maximum"] = json!(most);
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings;

    /// Lists the keys of an object's schema, with dots for inner tables.
    fn keys(object: &Value, above: &str, found: &mut Vec<String>) {
        for form in object["anyOf"].as_array().into_iter().flatten().chain([object]) {
            for (name, value) in form["properties"].as_object().into_iter().flatten() {
                found.push(format!("{above}{name}"));
                keys(value, &format!("{above}{name}."), found);
            }
        }
    }

    #[test]
    fn every_key_of_the_table_is_in_the_schema() {
        let schema = schema();
        let (mut global, mut pool) = (Vec::new(), Vec::new());
        keys(&schema["properties"]["global"], "", &mut global);
        keys(&schema["definitions"]["pool"], "", &mut pool);
        let (mut jobs, mut queue, mut schedule) = (Vec::new(), Vec::new(), Vec::new());
        let of_jobs = &schema["properties"]["jobs"];
        keys(of_jobs, "", &mut jobs);
        keys(
            &of_jobs["properties"]["queue"]["additionalProperties"],
            "",
            &mut queue,
        );
        keys(
            &of_jobs["properties"]["schedule"]["additionalProperties"],
            "",
            &mut schedule,
        );
        for setting in settings::all() {
            let (known, key) = match setting.section {
                Section::Jobs => (&jobs, setting.key.to_owned()),
                Section::JobQueue => (&queue, setting.key.to_owned()),
                Section::JobSchedule => (&schedule, setting.key.to_owned()),
                Section::Global => (&global, setting.key.to_owned()),
                Section::Pool => (&pool, setting.key.to_owned()),
                Section::Applications => (&pool, format!("applications.{}", setting.key)),
                _ => (&pool, format!("application.{}", setting.key)),
            };
            assert!(known.contains(&key), "{key}");
        }
    }

    #[test]
    fn forms_are_those_that_are_said() {
        assert_eq!(
            form("number, -19 to 20"),
            json!({ "type": "integer", "minimum": -19, "maximum": 20 })
        );
        assert_eq!(
            form("number, 1 or more"),
            json!({ "type": "integer", "minimum": 1 })
        );
        assert_eq!(form("`\"a\"`, `\"b\"`"), json!({ "enum": ["a", "b"] }));
        assert_eq!(
            form("size or `\"unlimited\"`")["anyOf"][2],
            json!({ "enum": ["unlimited"] })
        );
        assert_eq!(
            form("path, `\"stderr\"` or `\"syslog\"`"),
            json!({ "type": "string" })
        );
        let socket = form("flag, or `\"socket\"`");
        assert_eq!(socket["anyOf"][1], json!({ "enum": ["socket"] }));
    }
}
