//! The page of error messages: causes each fault, requests it through nginx, finds it with the page's command, and
//! fixes it.

mod bench;
mod faults;

use super::blocks::root;
use crate::support::prelude::*;
use bench::Bench;

struct Entry {
    texts: Vec<String>,
    looks: Vec<(String, String)>,
    cures: Vec<String>,
    left: BTreeSet<String>,
}

struct Page(Vec<Entry>);

fn spans(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(|part| part.replace('\n', " ")).collect()
}

fn item(text: &str, begin: &str) -> String {
    let lines = text.lines().skip_while(|line| !line.starts_with(begin));
    let rest = |(index, line): &(usize, &str)| *index == 0 || line.starts_with("  ");
    let lines = lines.enumerate().take_while(rest);
    lines.map(|(_, line)| line.trim()).collect::<Vec<_>>().join(" ")
}

fn has(said: &str, text: &str) -> bool {
    text.split('…').all(|part| said.contains(part))
}

impl Entry {
    fn read(text: &str) -> Entry {
        let heading = text.lines().next().unwrap_or_default();
        let mut looks = Vec::new();
        let mut command = None;
        for span in spans(&item(text, "- Look:")) {
            let commands = ["forkyard ", "journalctl ", "/var/log/", "ss "];
            match &command {
                _ if commands.iter().any(|begin| span.starts_with(begin)) => command = Some(span),
                Some(command) => looks.push((String::clone(command), span)),
                None => panic!("{heading}: no command says {span}"),
            }
        }
        let texts = spans(heading);
        let shown = looks.iter().map(|(_, shown)| shown);
        let left = texts.iter().chain(shown).cloned().collect();
        let cure = item(text, "- Cure:");
        assert!(!cure.is_empty(), "{heading} has no cure");
        Entry {
            texts,
            looks,
            cures: spans(&cure),
            left,
        }
    }
}

impl Page {
    fn read() -> Page {
        let text = read_file(root().join("docs/howto/errors.md"));
        let parts = text.split("\n### ").skip(1);
        let entries = parts.filter(|part| part.starts_with('`'));
        let ends = entries.map(|part| part.split("\n## ").next().unwrap_or(part));
        Page(ends.map(Entry::read).collect())
    }

    fn entry(&mut self, text: &str) -> &mut Entry {
        let found = self.0.iter_mut().find(|entry| entry.texts[0] == text);
        found.unwrap_or_else(|| panic!("the page has no {text}"))
    }

    fn cure(&mut self, text: &str, part: &str) -> String {
        let cures = &self.entry(text).cures;
        assert!(cures.iter().any(|cure| cure == part), "{text}: {part}: {cures:?}");
        part.to_owned()
    }

    /// Waits until the fault shows every text of the heading and the page's commands name these causes; then fixes it.
    fn drive(
        &mut self,
        (text, causes): (&str, &[&str]),
        bench: &mut Bench,
        fault: impl Fn(&Bench) -> String,
        (cure, path): (impl FnOnce(&mut Bench), &str),
    ) {
        let entry = self.entry(text);
        let mark = bench.mark();
        let said = until(text, || {
            let said = fault(bench) + &bench.since(mark);
            entry.texts.iter().all(|text| has(&said, text)).then_some(said)
        });
        entry.texts.iter().for_each(|text| {
            entry.left.remove(text);
        });
        let id = said.split("(error ").nth(1).and_then(|rest| rest.get(..8));
        for cause in causes {
            let looks = entry.looks.iter().filter(|(_, shown)| shown == cause);
            let commands: Vec<String> = looks.map(|(command, _)| command.clone()).collect();
            assert!(!commands.is_empty(), "{text}: the page has no {cause}");
            for command in commands {
                let command = command.replace("ID", id.unwrap_or("ID"));
                let what = format!("{text}: {cause} of {command}");
                let shown = bench.here(cause);
                wait_until(&what, || bench.run(&command).contains(&shown));
            }
            entry.left.remove(*cause);
        }
        cure(bench);
        wait_until(&format!("{text}: the page after the cure"), || {
            bench.ask(path).contains("served")
        });
    }
}
