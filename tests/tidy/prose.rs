//! A ratchet on prose: the odd constructions of each file are counted, and no file gets worse.

use super::{SOURCES, documents, files, root_text};
use regex::Regex;
use std::collections::BTreeMap;

const ALLOWED: &str = "tests/tidy/prose.txt";

const ODD: [(&str, &str, &str); 14] = [
    (
        "a clause in place of a noun",
        r"\b[Ww]hat (?:is|are|was|were|has|have|had|comes?|came|goes|went|belongs?|can|may|must|does|they|it|he|others?|nobody|somebody)\b",
        "name the thing: `what is left of it` → `the rest`",
    ),
    (
        "a person or group by a clause",
        r"\b(?:[Ww]hoever|[Tt]hose (?:who|that|of|in|with|which)|[Tt]he one (?:that|who|which|of)|[Oo]f (?:these|those|them))\b",
        "name them: `those that wait` → `waiting requests`",
    ),
    (
        "a passive of talk",
        r"\b(?:is|are|was|were|be|been|being) (?:told|said|heard|asked|let|thought|meant)\b",
        "say who does it: `the master is told` → `the worker reports to the master`",
    ),
    (
        "things that talk",
        r"\b(?:says|tells|said|hears|knows of)\b",
        "the verb of the field: returns, reports, names, contains, states",
    ),
    (
        "be to do",
        r"\b(?:is|are|was|were) (?:not )?to (?:be|[a-z]+)\b",
        "`is to be closed` → `must be closed`, or `will be closed`",
    ),
    (
        "a preposition with which or whom",
        r"\b(?:of|to|for|from|in|by|with|on|at|after|before) (?:which|whom|whose)\b",
        "two sentences, or `that … from`",
    ),
    (
        "the verb before its subject",
        r"(?:^|[.:;] )(?:Of|Who|Where|Nor|Neither|Without|Nothing|None|So|Likewise|Only then|Such) [a-z]",
        "begin with the subject",
    ),
    (
        "the same, without a noun",
        r"(?:^|[.:] )The same(?:[,.:]| (?:of|for|as|with|by|in)\b)",
        "name the thing",
    ),
    (
        "of its own",
        r"\bof (?:its|their|his|one's) own\b",
        "`its own X`, or leave it out",
    ),
    (
        "an old word",
        r"\b(?:anew|meanwhile|Meanwhile|beside|Beside|besides|thereby|thereof|therein|hereby|whereby|whence|lest|hitherto|ere)\b",
        "again, during this time, next to, in addition",
    ),
    (
        "but for except",
        r"\b(?:all|nothing|none|nobody|every \w+|any \w+) but\b|, but for\b",
        "`except`",
    ),
    (
        "else for otherwise",
        r"(?:^|[.;,] )[Ee]lse\b|\b(?:or|and|nor) else\b",
        "`otherwise`",
    ),
    ("a loose too", r", too\b", "`also`, before the verb"),
    (
        "to let go",
        r"\blets? go of\b|\bhas hold of\b|\bis done with\b",
        "closes, releases, holds, finishes",
    ),
];

const KINDS: [(&str, usize); 3] = [("comments", 5), ("documents", 4), ("messages", 4)];

fn plain(markdown: &str) -> String {
    let prose: Vec<&str> = markdown.split("```").step_by(2).collect();
    let code = Regex::new("`[^`\n]*`").expect("a pattern");
    let target = Regex::new(r"\]\([^)\n]*\)").expect("a pattern");
    target
        .replace_all(&code.replace_all(&prose.join("\n"), "X"), "]")
        .into_owned()
}

fn comments(source: &str) -> String {
    let lines = source.lines().map(str::trim_start);
    let lines = lines.filter_map(|line| line.strip_prefix("//"));
    let lines = lines.map(|line| line.trim_start_matches(['/', '!']).trim_start());
    plain(&lines.collect::<Vec<_>>().join("\n"))
}

fn messages(source: &str) -> String {
    let program = source.split("\n#[cfg(test)]").next().unwrap_or_default();
    let lines = program
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let program = lines.collect::<Vec<_>>().join("\n");
    let literal = Regex::new(r#""((?:[^"\\\n]|\\.|\\\n)*)""#).expect("a pattern");
    let texts = literal.captures_iter(&program).map(|found| found[1].to_owned());
    texts
        .filter(|text| words(text) >= 3 && text.contains(' '))
        .collect::<Vec<_>>()
        .join("\n")
}

fn words(text: &str) -> usize {
    let words = text.split(|character: char| !character.is_ascii_alphabetic() && character != '\'');
    words.filter(|word| !word.is_empty()).count()
}

fn has_messages(name: &str) -> bool {
    let is_test = ["/tests/", "/fuzz/"].iter().any(|folder| name.contains(folder))
        || ["/tests.rs", "_tests.rs"].iter().any(|end| name.ends_with(end));
    SOURCES.iter().any(|folder| name.starts_with(folder)) && !is_test
}

fn texts() -> Vec<(&'static str, String, String)> {
    let mut texts = Vec::new();
    for folder in ["benches", "crates", "examples", "fuzz", "src", "tests", "tools"] {
        for (name, source) in files(folder) {
            let name = format!("{folder}/{name}");
            texts.push(("comments", name.clone(), comments(&source)));
            if has_messages(&name) {
                texts.push(("messages", name, messages(&source)));
            }
        }
    }
    let documents = documents().into_iter().filter(|(name, _)| name != "CHANGELOG.md");
    texts.extend(documents.map(|(name, text)| ("documents", name, plain(&text))));
    texts
}

/// A failing test prints the correct rows.
#[test]
fn no_file_s_prose_gets_worse() {
    let odd: Vec<(&str, Regex, &str)> = ODD
        .iter()
        .map(|(name, pattern, plain)| (*name, Regex::new(&format!("(?m){pattern}")).expect(name), *plain))
        .collect();
    let allowed = root_text(ALLOWED);
    let rows = allowed.lines().map(|line| {
        let mut fields = line.splitn(3, ' ');
        let mut next = || {
            fields
                .next()
                .unwrap_or_else(|| panic!("{ALLOWED}: kind count path: {line}"))
        };
        let (kind, count, path) = (next(), next(), next());
        (
            (kind.to_owned(), path.to_owned()),
            count.parse().expect("a count"),
        )
    });
    let mut allowed: BTreeMap<(String, String), usize> = rows.collect();
    let mut wrong = Vec::new();
    for (kind, path, text) in texts() {
        let limit = KINDS
            .iter()
            .find(|(name, _)| *name == kind)
            .map_or(0, |(_, limit)| *limit);
        let found: Vec<(&str, String, &str)> = odd
            .iter()
            .flat_map(|(name, pattern, plain)| {
                let found = pattern.find_iter(&text);
                found.map(|found| (*name, found.as_str().trim().to_owned(), *plain))
            })
            .collect();
        let usual = (words(&text) * limit).div_ceil(1_000).max(1);
        let row = allowed.remove(&(kind.to_owned(), path.clone()));
        if found.len() > row.unwrap_or(usual) {
            let odd: Vec<String> = found
                .iter()
                .map(|(name, text, plain)| format!("    \"{text}\": {name}; {plain}"))
                .collect();
            let most = row.unwrap_or(usual);
            wrong.push(format!(
                "{path}: {} odd constructions in its {kind}, {most} allowed:\n{}",
                found.len(),
                odd.join("\n")
            ));
        } else if row.is_some_and(|row| found.len() < row) {
            let row = match found.len() > usual {
                true => format!("its row becomes: {kind} {} {path}", found.len()),
                false => format!("remove its row: {kind} … {path}"),
            };
            wrong.push(format!("{path} reads better than {ALLOWED} allows: {row}"));
        }
    }
    wrong.extend(
        allowed
            .into_keys()
            .map(|(kind, path)| format!("{ALLOWED} names {path} ({kind}), which is not there")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
