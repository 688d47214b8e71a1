//! The pages of the manual that no command line says: the configuration, and forkyard-fpm's options.

use crate::{fpm, guide};
use forkyard_config::settings::{self, Section, Setting};
use roff::{Inline, Roff, bold, italic, roman};

/// forkyard.toml(5).
pub(super) fn configuration() -> String {
    let mut page = page("FORKYARD.TOML", "5");
    page.control("SH", ["NAME"])
        .text([roman("forkyard.toml - the configuration of forkyard")])
        .control("SH", ["DESCRIPTION"])
        .text([
            roman("A file of TOML, by default "),
            italic("/etc/forkyard/forkyard.toml"),
            roman(". "),
            bold("forkyard check"),
            roman(" names every mistake in it, and what would be right. Durations are whole seconds, or a string with a unit: "),
            roman("\"500ms\", \"10s\", \"5m\", \"2h\", \"1d\". Sizes are bytes, or a string with a unit: \"64K\", \"1M\", \"2G\"."),
        ])
        .control("SH", ["ENVIRONMENT"])
        .text([
            bold("FORKYARD_GLOBAL__KEY"),
            roman(", "),
            bold("FORKYARD_POOL_NAME__KEY"),
            roman(": the value of a key in place of the file's. A dot in the key is written as two underscores, and any character of the \
                   pool's name that is neither letter nor digit as one. "),
            bold("forkyard check --effective"),
            roman(" shows which value is from where."),
        ]);
    for section in Section::ALL {
        let about = section.about();
        page.control("SH", [about.heading]).text([roman(about.text)]);
        settings::of(section).for_each(|setting| entry(setting, &mut page));
    }
    guide::sections("forkyard.toml", &mut page);
    page.control("SH", ["SEE ALSO"])
        .text([roman("forkyard(8), forkyard-check(8)")]);
    page.render()
}

/// forkyard-fpm(8).
pub(super) fn fpm() -> String {
    let mut page = page("FORKYARD-FPM", "8");
    page.control("SH", ["NAME"])
        .text([roman("forkyard-fpm - forkyard with php-fpm's options and files")])
        .control("SH", ["SYNOPSIS"])
        .text([bold("forkyard-fpm"), roman(" [options]")])
        .control("SH", ["DESCRIPTION"])
        .text([roman(
            "The same program as forkyard(8). By a name with fpm in it, it takes php-fpm's options, reads php-fpm's configuration \
             files, and writes its log lines and status pages.",
        )])
        .control("SH", ["OPTIONS"])
        .control("nf", []);
    for line in fpm::usage("forkyard-fpm").lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    guide::sections("forkyard-fpm", &mut page);
    page.control("SH", ["SEE ALSO"])
        .text([roman("forkyard(8), forkyard-import(8)")]);
    page.render()
}

fn page(name: &str, section: &str) -> Roff {
    let mut page = Roff::new();
    let source = concat!("forkyard ", env!("CARGO_PKG_VERSION"));
    page.control("TH", [name, section, "", source, "forkyard"]);
    page
}

fn entry(setting: &Setting, page: &mut Roff) {
    let mut head = vec![bold(setting.key)];
    if !setting.values.is_empty() {
        head.push(roman(format!(" = {}", plain(setting.values))));
    }
    page.control("TP", []).text(head);
    let mut said = plain(setting.meaning);
    if !setting.default.is_empty() {
        said.push_str(&format!(". Default: {}", plain(setting.default)));
    }
    page.text([Inline::Roman(said + ".")]);
}

/// A text of the table without the marks of Markdown.
fn plain(text: &str) -> String {
    let mut rest = text.replace('`', "");
    let mut done = String::new();
    while let Some((before, after)) = rest.split_once("](") {
        let (Some((before, name)), Some((_, after))) = (before.rsplit_once('['), after.split_once(')'))
        else {
            break;
        };
        done.push_str(before);
        done.push_str(name);
        rest = after.to_owned();
    }
    done + &rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_in_the_page_of_the_configuration() {
        let page = configuration();
        for setting in settings::all() {
            let name = setting.key.replace('-', "\\-");
            assert!(page.contains(&format!("\\fB{name}\\fR")), "{name}");
        }
        assert!(!page.contains("]("), "a link is left");
    }
}
