//! Reads the Markdown subset that the documents use.

use crate::support::prelude::*;
use std::fmt;

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn documents() -> Vec<PathBuf> {
    let mut all = in_folder(root());
    for folder in folders() {
        all.extend(in_folder(&folder));
    }
    all.sort();
    all
}

fn folders() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs");
    docs.map(|entry| entry.expect("an entry of docs").path())
        .collect()
}

fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of documents");
    let paths = entries.map(|entry| entry.expect("an entry of the folder").path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect()
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) kind: String,
    pub(crate) text: String,
    path: PathBuf,
    line: usize,
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

pub(crate) fn read(path: &Path) -> Vec<Block> {
    let text = read_file(path);
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut indentation = "";
    for (index, line) in text.lines().enumerate() {
        let line = line.strip_prefix(indentation).unwrap_or(line);
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(kind), None) => {
                let kind = kind.trim().to_owned();
                indentation = &line[..line.len() - line.trim_start().len()];
                open = Some(Block {
                    kind,
                    text: String::new(),
                    path: path.to_owned(),
                    line: index + 1,
                });
            }
            (Some(_), Some(_)) => {
                blocks.extend(open.take());
                indentation = "";
            }
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", path.display());
    blocks
}

fn prose(text: &str) -> String {
    let parts = text.split("```");
    parts.step_by(2).collect()
}

pub(crate) fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let ends = prose.split("](").skip(1);
    ends.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
        .collect()
}

pub(crate) fn anchors(text: &str) -> BTreeSet<String> {
    let prose = prose(text);
    let headings = prose
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| {
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

pub(crate) fn find(file: &str, kind: &str, text: &str) -> String {
    let found = read(&root().join(file))
        .into_iter()
        .find(|block| block.kind == kind && block.text.contains(text));
    found
        .unwrap_or_else(|| panic!("no {kind} block of {file} has {text}"))
        .text
}
