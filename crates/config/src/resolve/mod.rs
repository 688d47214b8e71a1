//! Drafts to the model: every rule that a configuration has to keep.

mod application;
mod applications;
mod confine;
mod global;
mod helpers;
mod listen;
mod manager;
mod node;
mod pool;
mod programs;
mod slow;
mod started;

pub(super) use listen::{is_short_enough, is_tcp, too_long};
pub(super) use pool::{can_be_named, read as pool_text};

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::{ApplicationDraft, GlobalDraft, PoolText};
use super::error::{Errors, Finding, Kind, Place};
use super::known::{self, Section};
use super::leaves::Leaves;
use super::model::{Address, Config, Pool};
use super::report::{Findings, Report};
use super::sharing;
use super::skip::{self, Mention};
use super::source::Source;
use super::value::quoted;
use super::{Loaded, World};

/// More included files than this are a mistake in a pattern.
const MAX_INCLUDED: usize = 10_000;

/// Resolves a configuration's text. `path` is its name in messages, and what `include` is relative to.
///
/// # Errors
/// The text has mistakes: all of them, each with its place and what would be right.
pub fn parse(text: &str, path: &Path, world: &dyn World) -> Result<Loaded, Errors> {
    let mut findings = Findings::default();
    let resolved = resolve(text, path, world, &mut findings);
    finish(resolved, findings)
}

/// The same for a file's bytes, which may not even be text.
pub(super) fn parse_bytes(bytes: &[u8], path: &Path, world: &dyn World) -> Result<Loaded, Errors> {
    let mut findings = Findings::default();
    let resolved =
        text(bytes, path, 0, &mut findings).and_then(|text| resolve(text, path, world, &mut findings));
    finish(resolved, findings)
}

/// The control socket that a main file names, whatever else is wrong with it and with what it includes; `None` if none
/// can be made out.
pub(super) fn control_socket(bytes: &[u8], path: &Path, world: &dyn World) -> Option<PathBuf> {
    let mut findings = Findings::default();
    let source = Source::new(path, 0, std::str::from_utf8(bytes).ok()?);
    let (global, _) = sections(&source, &mut findings)?;
    let global = global?;
    let written = global.control.written()?;
    global::control(written, &[], world, &mut Report::global(&mut findings))
}

fn finish(resolved: Option<Resolved>, findings: Findings) -> Result<Loaded, Errors> {
    let findings = findings.into_sorted();
    match resolved {
        Some((config, places)) => Ok(Loaded {
            config,
            warnings: findings,
            places,
        }),
        None => Err(Errors { findings }),
    }
}

/// A configuration, and where its pools say what they run.
type Resolved = (Config, HashMap<String, Place>);

fn resolve(text: &str, path: &Path, world: &dyn World, findings: &mut Findings) -> Option<Resolved> {
    let source = Source::new(path, 0, text);
    let (global, mut texts) = sections(&source, findings)?;
    let global = global.unwrap_or_else(|| {
        GlobalDraft::read(
            &mut Leaves::new(DeTable::new(), &source, None),
            &mut Report::global(findings),
        )
    });
    let mut mentions = Vec::new();
    let included = include(&global, path, world, &mut mentions, findings);
    texts.extend(included);
    mentions.extend(texts.iter().map(|text| Mention {
        pool: text.name.clone(),
        file: text.place.file.clone(),
        order: text.place.order,
    }));
    let texts = unique(texts, findings);
    let mut config = whole(&global, &texts, path, world, findings)?;
    if texts.is_empty() && !findings.has_errors() {
        let write =
            "a table [pool.NAME] with listen, pm, max_children and [pool.NAME.application]".to_owned();
        loose(findings, source.whole(), "pool", Kind::Missing { write });
    }
    config.included = skip::included(&mentions);
    let place = |text: &PoolText| (text.name.clone(), text.runtime_place().clone());
    let places = texts.iter().map(place).collect();
    skip::leave_out(&mut config, &mentions, findings).then_some((config, places))
}

/// The configuration that drafts make; pools that break a rule are not in it. `None`: php-fpm would not start.
pub(super) fn whole(
    global: &GlobalDraft,
    texts: &[PoolText],
    path: &Path,
    world: &dyn World,
    findings: &mut Findings,
) -> Option<Config> {
    let allow_root = global.allow_root.or(false);
    let mut pools = Vec::new();
    for text in texts {
        let mut report = Report::pool(findings, &text.name);
        match pool::resolve(text, allow_root, world, &mut report) {
            Some(pool) => pools.push((text, pool)),
            None if report.is_php_fpm() => {
                report.fail(format!("[pool {}] it can't be had", text.name));
                return None;
            }
            None => {}
        }
    }
    if !findings.is_php_fpm() {
        shared_addresses(&pools, findings);
        helpers::check(&pools, world, findings);
    }
    shared_preloaders(&pools, findings);
    let global = global::resolve(global, &pools, world, &mut Report::global(findings));
    let is_refused = findings.is_php_fpm() && findings.has_errors();
    (!is_refused).then(|| Config {
        path: path.to_owned(),
        global,
        pools: pools.into_iter().map(|(_, pool)| pool).collect(),
        skipped: Vec::new(),
        included: BTreeMap::new(),
    })
}

/// What a file holds: `[global]`, if it is there, and its pools in the order of the text.
fn sections(source: &Source<'_>, findings: &mut Findings) -> Option<(Option<GlobalDraft>, Vec<PoolText>)> {
    let mut global = None;
    let mut pools = Vec::new();
    for (key, value) in source.parse(findings)? {
        let place = source.place(key.span().start);
        let name: &str = key.get_ref();
        match (name, Spanned::into_inner(value)) {
            ("global", DeValue::Table(table)) => {
                let mut leaves = Leaves::new(table, source, None);
                let mut report = Report::global(findings);
                global = Some(GlobalDraft::read(&mut leaves, &mut report));
                leaves.finish(Section::Global, GlobalDraft::KEYS, &mut report);
            }
            ("pool", DeValue::Table(table)) => pools = pool_tables(table, source, findings),
            ("global", _) => not_a_table(findings, place, "global", "[global]"),
            ("pool", _) => not_a_table(findings, place, "pool", "[pool.NAME]"),
            (_, value) => {
                let advice = top_level_advice(name, value.is_table());
                loose(
                    findings,
                    place,
                    &super::leaves::dotted(&[name.to_owned()]),
                    Kind::UnknownKey { advice },
                );
            }
        }
    }
    Some((global, pools))
}

fn top_level_advice(name: &str, is_table: bool) -> Option<String> {
    match known::nearest_word(name, &["global", "pool"]) {
        Some("pool") => Some("a pool is written [pool.NAME]".to_owned()),
        Some(section) => Some(format!("did you mean [{section}]?")),
        None if is_table => Some(format!("if it is a pool, write [pool.{name}]")),
        None => known::advice(Section::Top, name, &[]),
    }
}

fn pool_tables(table: DeTable<'_>, source: &Source<'_>, findings: &mut Findings) -> Vec<PoolText> {
    let mut pools = Vec::new();
    for (key, value) in table {
        let offset = key.span().start;
        let place = source.place(offset);
        let name = key.into_inner().into_owned();
        match Spanned::into_inner(value) {
            DeValue::Table(table) => {
                let leaves = Leaves::new(table, source, Some(&name));
                let mut report = Report::pool(findings, &name);
                let text = pool::read(name, place, leaves, &mut report);
                pools.push((offset, text));
            }
            _ => not_a_table(findings, place, &format!("pool.{name}"), "[pool.NAME]"),
        }
    }
    pools.sort_by_key(|(offset, _)| *offset);
    pools.into_iter().map(|(_, text)| text).collect()
}

/// The pools of the included files.
/// `mentions`: gets the pools of files that can't be read as far as their names can.
fn include(
    global: &GlobalDraft,
    main: &Path,
    world: &dyn World,
    mentions: &mut Vec<Mention>,
    findings: &mut Findings,
) -> Vec<PoolText> {
    let mut pools = Vec::new();
    let Some(written) = global.include.written() else {
        return pools;
    };
    let base = main.parent().unwrap_or(Path::new(""));
    let mut seen: HashSet<PathBuf> = HashSet::from([main.to_owned()]);
    let mut files = Vec::new();
    for pattern in &written.value.0 {
        let mut report = Report::global(findings);
        match world.files(&base.join(pattern)) {
            Ok(found) if found.is_empty() => {
                report.warn(
                    written,
                    format!("{} matches no file", quoted(pattern)),
                    "nothing is included by it",
                );
            }
            Ok(found) => files.extend(found.into_iter().filter(|file| seen.insert(file.clone()))),
            Err(reason) => {
                report.rule(
                    written,
                    format!("{}: {reason}", quoted(pattern)),
                    "make the directory readable",
                );
            }
        }
    }
    if files.len() > MAX_INCLUDED {
        let problem = format!("{} files match", files.len());
        Report::global(findings).rule(written, problem, format!("include at most {MAX_INCLUDED}"));
        files.truncate(MAX_INCLUDED);
    }
    for (at, file) in files.iter().enumerate() {
        pools.extend(included_pools(file, at + 1, world, mentions, findings).unwrap_or_default());
    }
    pools
}

fn included_pools(
    file: &Path,
    order: usize,
    world: &dyn World,
    mentions: &mut Vec<Mention>,
    findings: &mut Findings,
) -> Option<Vec<PoolText>> {
    let bytes = match world.read(file) {
        Ok(bytes) => bytes,
        Err(reason) => {
            let place = Source::new(file, order, "").whole();
            findings.push(Finding::error(place, Kind::Unreadable { reason }));
            return None;
        }
    };
    let source = Source::new(file, order, text(&bytes, file, order, findings)?);
    let Some((global, pools)) = sections(&source, findings) else {
        mentions.extend(source.pool_names().into_iter().map(|pool| Mention {
            pool,
            file: source.whole().file,
            order,
        }));
        return None;
    };
    if global.is_some() {
        let problem = "is not read from an included file".to_owned();
        let remedy = "move it to the main file".to_owned();
        loose(findings, source.whole(), "global", Kind::Rule { problem, remedy });
    }
    Some(pools)
}

/// The bytes as text; `None` if they are not UTF-8, which is then among the findings.
fn text<'b>(bytes: &'b [u8], path: &Path, order: usize, findings: &mut Findings) -> Option<&'b str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            // The part before the error is UTF-8.
            let before = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            let place = Source::new(path, order, before).place(before.len());
            let advice = Some("save the file as UTF-8".to_owned());
            let problem = "this is not UTF-8".to_owned();
            findings.push(Finding::error(place, Kind::Syntax { problem, advice }));
            None
        }
    }
}

/// Reports pools that are defined again, and keeps the first of each name.
fn unique(texts: Vec<PoolText>, findings: &mut Findings) -> Vec<PoolText> {
    let mut kept: Vec<PoolText> = Vec::new();
    for text in texts {
        match kept.iter().find(|other| other.name == text.name) {
            Some(other) => {
                let problem = format!("this pool is already defined at {}", other.place);
                let kind = Kind::Rule {
                    problem,
                    remedy: "give one of the two another name".to_owned(),
                };
                findings.push(Finding {
                    pool: Some(text.name),
                    ..Finding::error(text.place, kind)
                });
            }
            None => kept.push(text),
        }
    }
    kept
}

/// Reports pools that would listen on the same address.
fn shared_addresses(pools: &[(&PoolText, Pool)], findings: &mut Findings) {
    // Paths by a map: of a thousand pools each would be compared with each.
    let mut sockets: HashMap<&Path, &Pool> = HashMap::new();
    let mut ports: Vec<(&Address, &Pool)> = Vec::new();
    for (text, pool) in pools {
        let own = (listen::written(&text.draft), Some(&pool.listen));
        let status = (text.draft.status_listen.written(), pool.status_listen.as_ref());
        for (written, listen) in [own, status] {
            let (Some(written), Some(listen)) = (written, listen) else {
                continue;
            };
            let earlier = match &listen.address {
                Address::Unix(path) => match sockets.entry(path) {
                    Entry::Occupied(known) => Some(*known.get()),
                    Entry::Vacant(place) => {
                        place.insert(pool);
                        None
                    }
                },
                address => {
                    let known = ports.iter().find(|(other, _)| overlap(other, address));
                    let known = known.map(|(_, other)| *other);
                    ports.push((address, pool));
                    known
                }
            };
            if let Some(other) = earlier {
                let problem = format!(
                    "pool {} already listens on {}",
                    other.name,
                    quoted(&written.value.0)
                );
                let mut report = Report::pool(findings, &pool.name);
                report.rule(written, problem, "give each pool an address of its own");
                findings.concerns(&other.name);
            }
        }
    }
}

/// Reports pools that ask for a preloader that they can't have together.
fn shared_preloaders(pools: &[(&PoolText, Pool)], findings: &mut Findings) {
    let all: Vec<&Pool> = pools.iter().map(|(_, pool)| pool).collect();
    for conflict in sharing::conflicts(&all) {
        let Some((first, others)) = conflict.pools.split_first() else {
            continue;
        };
        let (text, pool) = &pools[*first];
        if let ApplicationDraft::Php(draft) = &text.application {
            if let Some(written) = draft.preloader.written() {
                let text = format!("[pool {}] forkyard.preloader: {}", pool.name, conflict.problem);
                let mut report = Report::pool(findings, &pool.name);
                report.fail(text);
                report.rule(written, conflict.problem, conflict.remedy);
                for other in others {
                    findings.concerns(&pools[*other].1.name);
                }
            }
        }
    }
}

/// Whether both can't be bound. For TCP addresses; equal paths are found elsewhere.
fn overlap(a: &Address, b: &Address) -> bool {
    match (a, b) {
        (Address::TcpAny(a), Address::TcpAny(b)) => a == b,
        (Address::TcpAny(port), Address::Tcp(tcp)) | (Address::Tcp(tcp), Address::TcpAny(port)) => {
            *port == tcp.port()
        }
        (Address::Tcp(a), Address::Tcp(b)) => {
            let any = a.ip().is_unspecified() || b.ip().is_unspecified();
            a.port() == b.port() && (a.ip() == b.ip() || (any && a.is_ipv4() == b.is_ipv4()))
        }
        (Address::Unix(_), _) | (_, Address::Unix(_)) => false,
    }
}

fn not_a_table(findings: &mut Findings, place: Place, key: &str, write: &str) {
    let kind = Kind::Rule {
        problem: "is not a table".to_owned(),
        remedy: format!("write {write}"),
    };
    loose(findings, place, key, kind);
}

/// An error outside any section.
fn loose(findings: &mut Findings, place: Place, key: &str, kind: Kind) {
    findings.push(Finding {
        key: Some(key.to_owned()),
        ..Finding::error(place, kind)
    });
}
