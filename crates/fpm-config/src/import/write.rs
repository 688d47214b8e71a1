//! Writes TOML text.

use toml_edit::{DocumentMut, Item, Key, Table, Value};

pub(super) struct Document {
    document: DocumentMut,
}

impl Document {
    /// `source`: named in the first comment.
    pub(super) fn new(source: &str) -> Document {
        let mut document = DocumentMut::new();
        let source = printable(source);
        document.decor_mut().set_prefix(format!(
            "# Made of {source} by forkyard import. conf/forkyard.toml shows every key.\n\n"
        ));
        Document { document }
    }

    pub(super) fn open(&mut self, path: &[&str], comments: Vec<String>) {
        let is_first = self.document.as_table().is_empty();
        let table = table(self.document.as_table_mut(), path, false);
        let space = if is_first { "" } else { "\n" };
        table
            .decor_mut()
            .set_prefix(format!("{space}{}", prefix(&comments)));
    }

    /// Sets a possibly dotted key in a table.
    pub(super) fn put(&mut self, path: &[&str], key: &str, value: impl Into<Value>, comments: Vec<String>) {
        let mut target = table(self.document.as_table_mut(), path, false);
        let mut parts: Vec<&str> = key.split('.').collect();
        let leaf = parts.pop().unwrap_or(key);
        for part in parts {
            target = table(target, &[part], true);
        }
        insert(target, leaf, value.into(), &comments);
    }

    /// Sets a name with any characters in a table of free names.
    pub(super) fn put_entry(&mut self, path: &[&str], name: &str, value: Value, comments: Vec<String>) {
        let target = table(self.document.as_table_mut(), path, false);
        insert(target, name, value, &comments);
    }

    pub(super) fn into_text(self) -> String {
        self.document.to_string()
    }
}

fn insert(table: &mut Table, name: &str, value: Value, comments: &[String]) {
    let mut key = Key::new(name);
    key.leaf_decor_mut().set_prefix(prefix(comments));
    key.leaf_decor_mut().set_suffix(" ");
    table.insert_formatted(&key, Item::Value(value));
}

/// The table at a path. Parents are implicit unless they have keys.
fn table<'t>(top: &'t mut Table, path: &[&str], is_dotted: bool) -> &'t mut Table {
    let mut table = top;
    for (at, part) in path.iter().enumerate() {
        let is_last = at + 1 == path.len();
        let item = table.entry(part).or_insert_with(|| {
            let mut new = Table::new();
            new.set_dotted(is_dotted);
            new.set_implicit(!is_last);
            Item::Table(new)
        });
        if !item.is_table() {
            *item = Item::Table(Table::new());
        }
        let Item::Table(next) = item else {
            unreachable!("it was made a table above")
        };
        if is_last {
            next.set_implicit(false);
        }
        table = next;
    }
    table
}

fn prefix(comments: &[String]) -> String {
    let lines = comments.iter().map(|comment| {
        let comment = printable(comment);
        let space = if comment.starts_with([' ', '\t']) || comment.is_empty() {
            ""
        } else {
            " "
        };
        format!("#{space}{comment}\n")
    });
    lines.collect()
}

/// TOML comments can't contain control characters.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\t' { ' ' } else { c })
        .collect()
}
