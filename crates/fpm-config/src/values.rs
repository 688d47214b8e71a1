//! A section's directive values.

use super::ini::number;
use forkyard_config::settings::{self, Directive, Form, Limit, Section, Setting, Shown};
use forkyard_config::units::{self, FACILITIES, Manager};
use forkyard_config::{Location, LogLevel};

pub(super) const NO_PRIORITY: i32 = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(Option<String>),
    Flag(bool),
    Number(i32),
    Time(i32),
    Level(Option<LogLevel>),
    Facility(i32),
    /// -1: unlimited.
    Core(i32),
    Manager(Option<Manager>),
    List(Vec<Item>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) key: String,
    pub(super) value: String,
    pub(super) location: Location,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Default,
    Rule,
    Written(Location),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Values {
    section: Section,
    list: Vec<Value>,
    origins: Vec<Origin>,
}

impl Values {
    pub(super) fn new(section: Section) -> Values {
        let list: Vec<Value> = of(section).map(unset).collect();
        Values {
            section,
            origins: vec![Origin::Default; list.len()],
            list,
        }
    }

    fn index(&self, name: &str) -> Option<usize> {
        of(self.section).position(|directive| directive.name.eq_ignore_ascii_case(name))
    }

    /// Sets a value. Returns `None` for an unknown directive.
    pub(super) fn write(
        &mut self,
        name: &str,
        text: &str,
        pool: Option<&str>,
        location: &Location,
    ) -> Option<Result<(), &'static str>> {
        let at = self.index(name)?;
        let directive = of(self.section).nth(at).filter(|d| d.form != Form::List)?;
        Some(read(directive.form, text, pool).map(|value| {
            self.list[at] = value;
            self.origins[at] = Origin::Written(location.clone());
        }))
    }

    pub(super) fn add(&mut self, name: &str, item: Item) {
        if let Some(at) = self.index(name) {
            if let Value::List(list) = &mut self.list[at] {
                self.origins[at] = Origin::Written(item.location.clone());
                list.push(item);
            }
        }
    }

    /// Replaces entries of the same name: the first of several wins.
    pub(super) fn put_first(&mut self, name: &str, item: Item) {
        let mut list = vec![item];
        let others = self.list(name).iter().filter(|other| other.key != list[0].key);
        let others: Vec<Item> = others.cloned().collect();
        list.extend(others);
        self.replace(name, list);
    }

    pub(super) fn replace(&mut self, name: &str, items: Vec<Item>) {
        if let Some(at) = self.index(name) {
            if let Some(first) = items.first() {
                self.origins[at] = Origin::Written(first.location.clone());
            }
            self.list[at] = Value::List(items);
        }
    }

    pub(super) fn is_written(&self, name: &str) -> bool {
        self.index(name)
            .is_some_and(|at| matches!(self.origins[at], Origin::Written(_)))
    }

    /// The first number, among directives after one and up to another, outside php-fpm's limits.
    pub(super) fn beyond(&self, after: &str, until: &str) -> Option<&'static Limit> {
        let behind = self
            .all()
            .skip_while(|(directive, _)| directive.name != after && !after.is_empty());
        let mut between = behind.take_while(|(directive, _)| directive.name != until);
        between.find_map(|(directive, value)| {
            let limit = directive.limit.as_ref()?;
            let is_unset = *value == Value::Number(NO_PRIORITY) && directive.shown == Shown::Priority;
            let is_beyond =
                matches!(value, Value::Number(number) if *number < limit.least || *number > limit.most);
            (is_beyond && !is_unset).then_some(limit)
        })
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&'static Directive, &Value)> {
        of(self.section).zip(&self.list)
    }

    pub(super) fn given(
        &self,
    ) -> impl Iterator<Item = (&'static Directive, &'static Setting, &Value, Option<&Location>)> {
        let rows = settings::directives(self.section == Section::Global);
        let given = rows.zip(&self.list).zip(&self.origins);
        given.filter_map(|(((directive, setting), value), origin)| match origin {
            Origin::Default => None,
            Origin::Rule => Some((directive, setting, value, None)),
            Origin::Written(location) => Some((directive, setting, value, Some(location))),
        })
    }

    fn value(&self, name: &str) -> &Value {
        // Only code uses these names, and a test checks them all.
        self.index(name).map_or(&Value::Text(None), |at| &self.list[at])
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match self.value(name) {
            Value::Text(Some(text)) => Some(text),
            _ => None,
        }
    }

    /// The text, if set and not empty.
    pub(super) fn full(&self, name: &str) -> Option<&str> {
        self.text(name).filter(|text| !text.is_empty())
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        *self.value(name) == Value::Flag(true)
    }

    /// A number, a time in seconds or a limit.
    pub(super) fn number(&self, name: &str) -> i32 {
        match self.value(name) {
            Value::Number(number) | Value::Time(number) | Value::Core(number) => *number,
            _ => 0,
        }
    }

    pub(super) fn level(&self) -> Option<LogLevel> {
        match self.value("log_level") {
            Value::Level(level) => *level,
            _ => None,
        }
    }

    pub(super) fn manager(&self) -> Option<Manager> {
        match self.value("pm") {
            Value::Manager(manager) => *manager,
            _ => None,
        }
    }

    pub(super) fn list(&self, name: &str) -> &[Item] {
        match self.value(name) {
            Value::List(list) => list,
            _ => &[],
        }
    }

    pub(super) fn list_mut(&mut self, name: &str) -> &mut [Item] {
        match self.index(name).map(|at| &mut self.list[at]) {
            Some(Value::List(list)) => list,
            _ => &mut [],
        }
    }

    pub(super) fn set_text(&mut self, name: &str, text: String) {
        self.set(name, Value::Text(Some(text)));
    }

    pub(super) fn set(&mut self, name: &str, value: Value) {
        if let Some(at) = self.index(name) {
            self.list[at] = value;
            if self.origins[at] == Origin::Default {
                self.origins[at] = Origin::Rule;
            }
        }
    }
}

/// A section's directives in order, without `include`.
fn of(section: Section) -> impl Iterator<Item = &'static Directive> {
    settings::directives(section == Section::Global).map(|(directive, _)| directive)
}

fn unset(directive: &Directive) -> Value {
    match (directive.form, directive.shown) {
        // Set after reading, where the dump shows them.
        (Form::Text | Form::Commas | Form::Blanks | Form::Octal, _) => Value::Text(None),
        (Form::Level, _) => Value::Level(None),
        (Form::Manager, _) => Value::Manager(None),
        (Form::List, _) => Value::List(Vec::new()),
        (_, Shown::Priority) => Value::Number(NO_PRIORITY),
        (form, _) => read(form, directive.default, None).unwrap_or(Value::Number(0)),
    }
}

fn read(form: Form, text: &str, pool: Option<&str>) -> Result<Value, &'static str> {
    match form {
        Form::Text | Form::Commas | Form::Blanks | Form::Octal | Form::List => {
            expand_pool(text, pool).map(|text| Value::Text(Some(text)))
        }
        Form::Flag => flag(text).map(Value::Flag),
        Form::Number => whole(text).map(Value::Number),
        Form::Time => time(text).map(Value::Time),
        Form::Level => match units::level(text) {
            None => Err("invalid value for 'log_level'"),
            level => Ok(Value::Level(level)),
        },
        Form::Facility => facility(text).map(Value::Facility),
        Form::Core if text.eq_ignore_ascii_case("unlimited") => Ok(Value::Core(-1)),
        Form::Core => match whole(text)? {
            limit if limit < 0 => Err("must be greater than zero or 'unlimited'"),
            limit => Ok(Value::Core(limit)),
        },
        Form::Manager => match units::manager(text) {
            None => Err("invalid process manager (static, dynamic or ondemand)"),
            manager => Ok(Value::Manager(manager)),
        },
    }
}

pub(super) fn expand_pool(text: &str, pool: Option<&str>) -> Result<String, &'static str> {
    match (text.contains("$pool"), pool) {
        (false, _) => Ok(text.to_owned()),
        (true, Some(pool)) => Ok(text.replace("$pool", pool)),
        (true, None) => Err("Can't use '$pool' when the pool is not defined"),
    }
}

pub(super) fn flag(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "yes" | "true" | "on" => Ok(true),
        "" | "0" | "no" | "none" | "false" | "off" => Ok(false),
        _ => Err("invalid boolean value"),
    }
}

fn whole(text: &str) -> Result<i32, &'static str> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(number(text))
    } else {
        Err("is not a valid number (greater or equal than zero)")
    }
}

fn time(text: &str) -> Result<i32, &'static str> {
    let seconds = match text.bytes().last() {
        None => return Err("invalid time value"),
        Some(b's' | b'0'..=b'9') => 1,
        Some(b'm') => 60,
        Some(b'h') => 3600,
        Some(b'd') => 86400,
        Some(_) => return Err("unknown suffix used in time value"),
    };
    Ok(number(text).wrapping_mul(seconds))
}

fn facility(text: &str) -> Result<i32, &'static str> {
    let number = units::facility(text).ok_or("invalid value")?;
    Ok(i32::from(number) << 3)
}

pub(super) fn facility_name(number: i32) -> &'static str {
    let found = FACILITIES
        .iter()
        .find(|(_, facility)| i32::from(*facility) << 3 == number);
    found.map_or("daemon", |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_as_they_do_in_php_fpm() {
        assert_eq!(whole("9999999999"), Ok(1_410_065_407));
        assert_eq!(whole(""), Ok(0));
        assert!(whole("1-").is_err());
        assert_eq!(time("2m"), Ok(120));
        assert_eq!(time("x5"), Ok(0));
        assert!(time("5x").is_err() && time("").is_err());
    }

    #[test]
    fn every_default_can_be_read() {
        for section in [Section::Global, Section::Pool] {
            for directive in of(section).filter(|d| d.form != Form::Manager && !d.default.is_empty()) {
                assert!(
                    read(directive.form, directive.default, None).is_ok(),
                    "{}",
                    directive.name
                );
            }
        }
    }
}
