//! The answers to the questions that newcomers ask first are held to the code.

use super::{quoted, root_text, sources};

const MOST_FILES: usize = 2;

#[test]
fn the_seven_questions_are_answered_by_the_files_beside_them() {
    let text = root_text("docs/explain/architecture.md");
    let (_, section) = text.split_once("\n## Seven questions\n").expect("the section");
    let (section, _) = section.split_once("\n## ").expect("another section");
    let rows: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains(" in `"))
        .collect();
    assert!(rows.len() >= 10, "{} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [question, answer, places] = cells[..] else {
            panic!("not three cells: {row}");
        };
        let mut sources = String::new();
        let places: Vec<&str> = places.split("; ").collect();
        assert!(
            places.len() <= MOST_FILES,
            "{question}: more files than {MOST_FILES}"
        );
        for place in places {
            let words = quoted(place);
            let [function, file] = &words[..] else {
                panic!("no function in a file: {place}");
            };
            let code = root_text(file);
            assert!(
                code.contains(&format!("fn {function}(")),
                "{file} has no function {function}: {question}"
            );
            sources.push_str(code.split("\nmod tests {").next().unwrap_or_default());
        }
        for word in quoted(answer) {
            assert!(sources.contains(&word), "{question}: the files do not say {word}");
        }
    }
}

#[test]
fn a_directive_is_in_the_files_that_contributing_names() {
    let text = root_text("CONTRIBUTING.md");
    let (_, section) = text
        .split_once("\n## A new key or directive\n")
        .expect("the section");
    let (section, _) = section.split_once("\n## ").expect("another section");
    let example = &quoted(section)[0];
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let files: Vec<String> = rows
        .flat_map(|row| quoted(row.split(" | ").next().unwrap_or_default()))
        .collect();
    for file in &files {
        assert!(root_text(file).contains(example), "{file} has no {example}");
    }
    for (name, text) in sources() {
        assert!(
            !text.contains(example) || files.contains(&name),
            "{name} has {example}, and is not in the table"
        );
    }
}

#[test]
fn the_first_page_links_to_the_questions() {
    assert!(root_text("README.md").contains("docs/explain/architecture.md#seven-questions"));
}
