//! Files to sections.

use super::Options;
use super::directives::Section;
use super::ini::{self, Statement};
use super::journal::{Failed, Journal};
use super::machine::{Machine, value_of};
use super::paths;
use super::sights::{Remarks, Sight};
use super::values::{Values, expand_pool, flag};
use std::path::Path;

/// Files that may include each other.
const MAX_NESTED: usize = 5;
/// Pools beyond this are a mistake in a pattern.
const MAX_POOLS: usize = 100_000;

/// One pool, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolText {
    pub(super) name: String,
    pub(super) values: Values,
}

/// A whole configuration, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) global: Values,
    pub(super) pools: Vec<PoolText>,
    /// Where everything was written, if that was wanted.
    pub(super) sights: Vec<Sight>,
}

/// Reads the file and those that it includes. `remembers`: where everything was written is kept.
pub(super) fn read(
    options: &Options,
    machine: &dyn Machine,
    journal: &mut Journal,
    remembers: bool,
) -> Result<Written, Failed> {
    let mut reader = Reader {
        written: Written {
            global: Values::new(Section::Global),
            pools: Vec::new(),
            sights: Vec::new(),
        },
        current: None,
        include: None,
        options,
        machine,
        journal,
        is_wrong: false,
        remembers,
    };
    reader.file(&options.path(), 0)?;
    Ok(reader.written)
}

struct Reader<'r> {
    written: Written,
    /// The pool that lines are about; `None`: the global section.
    current: Option<usize>,
    /// What is to be included after the line that says so.
    include: Option<String>,
    options: &'r Options,
    machine: &'r dyn Machine,
    journal: &'r mut Journal,
    is_wrong: bool,
    remembers: bool,
}

impl Reader<'_> {
    fn file(&mut self, path: &str, nested: usize) -> Result<(), Failed> {
        if path.is_empty() {
            return Err(self.journal.error("configuration filename is empty"));
        }
        let bytes = match self.machine.read_file(Path::new(path)) {
            Ok(bytes) => bytes,
            Err(failure) => {
                let text = format!("failed to open configuration file '{path}': {failure}");
                return Err(self.journal.error(text));
            }
        };
        if nested >= MAX_NESTED {
            let text = format!("failed to include more than {MAX_NESTED} files recursively");
            return Err(self.journal.error(text));
        }
        let text = String::from_utf8_lossy(&bytes);
        let mut remarks = Remarks::default();
        for (at, line) in text.split_inclusive('\n').enumerate() {
            let place = (path, at + 1);
            // php-fpm ends the last line, too.
            let ended;
            let line = if line.ends_with('\n') {
                line
            } else {
                ended = format!("{line}\n");
                &ended
            };
            self.line(line, path, at + 1)?;
            if self.remembers {
                remarks.take(line, |statement, comments| self.see(statement, place, comments));
            }
            if let Some(pattern) = self.include.take() {
                self.included(&pattern, path, at + 1, nested)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str, path: &str, number: usize) -> Result<(), Failed> {
        let (machine, version) = (self.machine, self.options.version());
        let lookup = |name: ini::Name<'_>| value_of(name, version, machine);
        let (statements, error) = ini::parse(line, &lookup);
        self.is_wrong = false;
        for statement in statements {
            self.statement(statement, &format!("[{path}:{number}]"));
        }
        if let Some(error) = error {
            self.journal.php(error.0);
            return Err(Failed);
        }
        if self.is_wrong { Err(Failed) } else { Ok(()) }
    }

    /// Remembers where something was written.
    fn see(&mut self, statement: &Statement, place: (&str, usize), comments: Vec<String>) {
        let pools = &self.written.pools;
        let (name, key) = match statement {
            Statement::Section(_) => ("", None),
            Statement::Entry(name, _) => (name.as_str(), None),
            Statement::Item(name, key, _) => (name.as_str(), Some(key.clone())),
        };
        self.written.sights.push(Sight {
            pool: self
                .current
                .and_then(|at| pools.get(at))
                .map(|pool| pool.name.clone()),
            name: name.to_ascii_lowercase(),
            key,
            path: place.0.to_owned(),
            line: place.1,
            comments,
        });
    }

    fn wrong(&mut self, text: String) {
        self.journal.error(text);
        self.is_wrong = true;
    }

    fn statement(&mut self, statement: Statement, place: &str) {
        match statement {
            Statement::Section(name) => self.section(name, place),
            Statement::Entry(_, None) => {
                self.wrong(format!("{place} value is NULL for a ZEND_INI_PARSER_ENTRY"));
            }
            Statement::Entry(name, Some(value)) => self.entry(&name, &value, place),
            Statement::Item(name, key, value) => {
                for problem in self.item(&name, &key, &value) {
                    self.wrong(format!("{place} {problem}"));
                }
            }
        }
    }

    fn section(&mut self, name: String, place: &str) {
        if name.eq_ignore_ascii_case("global") {
            self.current = None;
            return;
        }
        let pools = &mut self.written.pools;
        let known = pools
            .iter()
            .position(|pool| pool.name.eq_ignore_ascii_case(&name));
        if known.is_none() && pools.len() >= MAX_POOLS {
            return self.wrong(format!(
                "{place} Unable to alloc a new WorkerPool for worker '{name}'"
            ));
        }
        self.current = Some(known.unwrap_or_else(|| {
            pools.push(PoolText {
                name,
                values: Values::new(Section::Pool),
            });
            pools.len() - 1
        }));
    }

    fn entry(&mut self, name: &str, value: &str, place: &str) {
        if name == "include" {
            if self.include.is_some() {
                return self.wrong(format!("{place} two includes at the same time !"));
            }
            self.include = Some(value.to_owned()).filter(|pattern| !pattern.is_empty());
            return;
        }
        let outcome = match self.current.and_then(|at| self.written.pools.get_mut(at)) {
            Some(pool) => pool.values.write(name, value, Some(&pool.name)),
            None => self.written.global.write(name, value, None),
        };
        match outcome {
            Some(Ok(())) => {}
            Some(Err(tail)) => {
                self.wrong(format!(
                    "{place} unable to parse value for entry '{name}': {tail}"
                ));
            }
            None => self.wrong(format!("{place} unknown entry '{name}'")),
        }
    }

    /// Takes an entry of a list; says what is wrong with it.
    fn item(&mut self, name: &str, key: &str, value: &str) -> Vec<String> {
        let problems = key_problems(name, key, value);
        if !problems.is_empty() {
            return problems;
        }
        let Some(pool) = self.current.and_then(|at| self.written.pools.get_mut(at)) else {
            return vec!["Array are not allowed in the global section".to_owned()];
        };
        let flagged;
        let (list, value) = match name {
            "env" if value.is_empty() => return vec!["empty value".to_owned()],
            "env" | "php_value" | "php_admin_value" | "access.suppress_path" => (name, value),
            "php_flag" | "php_admin_flag" => {
                flagged = match flag(value) {
                    Ok(true) => "1",
                    Ok(false) => "0",
                    Err(tail) => return vec![format!("error while parsing '{name}[{key}]' : {tail}")],
                };
                let list = if name == "php_flag" {
                    "php_value"
                } else {
                    "php_admin_value"
                };
                (list, flagged)
            }
            _ => return vec![format!("unknown directive '{name}'")],
        };
        let value = expand_pool(value, Some(&pool.name)).unwrap_or_default();
        pool.values.add(list, key, &value);
        Vec::new()
    }

    fn included(&mut self, pattern: &str, path: &str, line: usize, nested: usize) -> Result<(), Failed> {
        let pattern = paths::under(pattern, self.options.prefix.as_deref().unwrap_or(paths::PREFIX));
        let files = match self.machine.glob(&pattern) {
            Ok(files) => files,
            Err(number) => {
                let text =
                    format!("Unable to globalize '{pattern}' (ret={number}) from {path} at line {line}.");
                return Err(self.journal.error(text));
            }
        };
        if files.is_empty() {
            let text = format!("Nothing matches the include pattern '{pattern}' from {path} at line {line}.");
            self.journal.warn(text);
        }
        let machine = self.machine;
        for file in files.into_iter().filter(|file| !machine.is_dir(file)) {
            let file = file.to_string_lossy().into_owned();
            if self.file(&file, nested + 1).is_err() {
                let text = format!("Unable to include {file} from {path} at line {line}");
                return Err(self.journal.error(text));
            }
        }
        Ok(())
    }
}

/// What is wrong with the key of a list's entry, or with a value that has none. php-fpm looks at this before it looks
/// for the pool.
fn key_problems(name: &str, key: &str, value: &str) -> Vec<String> {
    if name != "access.suppress_path" {
        let text = || format!("You must provide a key for field '{name}'");
        return key.is_empty().then(text).into_iter().collect();
    }
    let mut problems = Vec::new();
    if !key.is_empty() {
        problems.push(format!("Keys provided to field '{name}' are ignored"));
    }
    if !value.starts_with('/') {
        problems.push(format!("Values provided to field '{name}' must begin with '/'"));
    }
    problems
}
