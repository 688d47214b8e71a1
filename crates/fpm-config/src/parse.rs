//! Parses files into sections.

use super::Options;
use super::ini::{self, Statement};
use super::journal::{Failed, Journal};
use super::machine::{Machine, value_of};
use super::paths;
use super::remarks::Remarks;
use super::values::{Item, Values, expand_pool, flag};
use forkyard_config::Location;
use forkyard_config::settings::Section;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

const MAX_NESTED: usize = 5;
/// More pools indicate a wrong pattern.
const MAX_POOLS: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolText {
    pub(super) name: String,
    /// The latest header of its section.
    pub(super) location: Location,
    pub(super) values: Values,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) global: Values,
    pub(super) pools: Vec<PoolText>,
    /// The latest header of the global section.
    pub(super) opened: Option<Location>,
    /// Comments by file and line number, if requested.
    pub(super) comments: HashMap<(usize, usize), Vec<String>>,
}

impl Written {
    pub(super) fn comments(&self, location: Option<&Location>) -> Vec<String> {
        let found = location.and_then(|location| self.comments.get(&(location.order, location.line)));
        found.cloned().unwrap_or_default()
    }
}

/// Reads a file and its includes. `remembers`: keep comments.
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
            opened: None,
            comments: HashMap::new(),
        },
        files: 0,
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
    files: usize,
    /// The current pool. `None`: the global section.
    current: Option<usize>,
    /// The pattern to include after this line.
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
        let file: Arc<Path> = Path::new(path).into();
        let order = self.files;
        self.files += 1;
        for (at, line) in text.split_inclusive('\n').enumerate() {
            let location = Location {
                file: file.clone(),
                line: at + 1,
                column: 1,
                order,
            };
            let ended;
            let line = if line.ends_with('\n') {
                line
            } else {
                ended = format!("{line}\n");
                &ended
            };
            self.line(line, &location)?;
            if self.remembers {
                let comments = remarks.of(line);
                self.written.comments.insert((order, at + 1), comments);
            }
            if let Some(pattern) = self.include.take() {
                self.included(&pattern, path, at + 1, nested)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &str, location: &Location) -> Result<(), Failed> {
        let (machine, version) = (self.machine, self.options.version());
        let lookup = |name: ini::Name<'_>| value_of(name, version, machine);
        // php-fpm's lines end at NUL.
        let line = line.split('\0').next().unwrap_or_default();
        let (statements, error) = ini::parse(line, &lookup);
        self.is_wrong = false;
        for statement in statements {
            self.statement(statement, location);
        }
        if let Some(error) = error {
            self.journal.php(error.0);
            return Err(Failed);
        }
        if self.is_wrong { Err(Failed) } else { Ok(()) }
    }

    fn wrong(&mut self, location: &Location, text: &str) {
        let (file, line) = (location.file.display(), location.line);
        self.journal.error(format!("[{file}:{line}] {text}"));
        self.is_wrong = true;
    }

    fn statement(&mut self, statement: Statement, location: &Location) {
        match statement {
            Statement::Section(name) => self.section(name, location),
            Statement::Entry(_, None) => {
                self.wrong(location, "value is NULL for a ZEND_INI_PARSER_ENTRY");
            }
            Statement::Entry(name, Some(value)) => self.entry(&name, &value, location),
            Statement::Item(name, key, value) => {
                for problem in self.item(&name, &key, &value, location) {
                    self.wrong(location, &problem);
                }
            }
        }
    }

    fn section(&mut self, name: String, location: &Location) {
        if name.eq_ignore_ascii_case("global") {
            self.current = None;
            self.written.opened = Some(location.clone());
            return;
        }
        let pools = &mut self.written.pools;
        let known = pools
            .iter()
            .position(|pool| pool.name.eq_ignore_ascii_case(&name));
        if known.is_none() && pools.len() >= MAX_POOLS {
            let text = format!("Unable to alloc a new WorkerPool for worker '{name}'");
            return self.wrong(location, &text);
        }
        let at = known.unwrap_or(pools.len());
        match pools.get_mut(at) {
            Some(pool) => pool.location = location.clone(),
            None => pools.push(PoolText {
                name,
                location: location.clone(),
                values: Values::new(Section::Pool),
            }),
        }
        self.current = Some(at);
    }

    fn entry(&mut self, name: &str, value: &str, location: &Location) {
        if name == "include" {
            if self.include.is_some() {
                return self.wrong(location, "two includes at the same time !");
            }
            self.include = Some(value.to_owned()).filter(|pattern| !pattern.is_empty());
            return;
        }
        let outcome = match self.current.and_then(|at| self.written.pools.get_mut(at)) {
            Some(pool) => pool.values.write(name, value, Some(&pool.name), location),
            None => self.written.global.write(name, value, None, location),
        };
        match outcome {
            Some(Ok(())) => {}
            Some(Err(tail)) => {
                let text = format!("unable to parse value for entry '{name}': {tail}");
                self.wrong(location, &text);
            }
            None => self.wrong(location, &format!("unknown entry '{name}'")),
        }
    }

    fn item(&mut self, name: &str, key: &str, value: &str, location: &Location) -> Vec<String> {
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
        let item = Item {
            key: key.to_owned(),
            value: expand_pool(value, Some(&pool.name)).unwrap_or_default(),
            location: location.clone(),
        };
        pool.values.add(list, item);
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

/// Problems of a list entry's key or missing value. php-fpm checks this before it looks for the pool.
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
