//! Resolves drafts to the model and checks all rules.

mod addresses;
pub(super) mod application;
mod applications;
mod confine;
mod global;
mod helpers;
mod jobs;
mod lanes;
mod listen;
mod manager;
pub(crate) mod node;
mod overload;
pub mod php_fpm;
mod pool;
mod programs;
mod release;
mod slow;
mod started;
mod web;
mod worker_script;

pub use pool::can_be_named;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::draft::{ApplicationDraft, GlobalDraft, JobsText, PoolText};
use super::effective::Effective;
use super::error::{Diagnostic, Errors, Kind, Location};
use super::flat_keys::FlatKeys;
use super::known::{self, Section};
use super::model::{Config, Pool};
use super::overrides::Overrides;
use super::report::{Diagnostics, Report};
use super::sharing;
use super::skip::{self, Mention};
use super::source::Source;
use super::start_settings;
use super::value::quoted;
use super::{Loaded, World};

/// More included files indicate a wrong pattern.
const MAX_INCLUDED: usize = 10_000;

/// Parses and resolves a configuration. `path`: its name in messages, and the base of `include`.
///
/// # Errors
/// All errors, with place and fix.
pub fn parse(text: &str, path: &Path, world: &dyn World) -> Result<Loaded, Errors> {
    parse_bytes(text.as_bytes(), path, world)
}

pub(super) fn effective(bytes: &[u8], path: &Path, world: &dyn World) -> Result<String, Errors> {
    let reading = Sources {
        effective: Some(RefCell::default()),
        ..Sources::of(world)
    };
    load(bytes, path, &reading)?;
    let mut shown = String::new();
    for (at, table) in reading.effective.iter().flat_map(RefCell::take).enumerate() {
        shown.push_str(if at > 0 { "\n" } else { "" });
        table.render(&mut shown);
    }
    Ok(shown)
}

pub(super) fn parse_bytes(bytes: &[u8], path: &Path, world: &dyn World) -> Result<Loaded, Errors> {
    load(bytes, path, &Sources::of(world))
}

fn load(bytes: &[u8], path: &Path, reading: &Sources<'_>) -> Result<Loaded, Errors> {
    let mut diagnostics = Diagnostics::default();
    let resolved = text(bytes, path, 0, &mut diagnostics)
        .and_then(|text| resolve(text, path, reading, &mut diagnostics));
    let diagnostics = diagnostics.into_sorted();
    match resolved {
        Some(loaded) => Ok(Loaded {
            warnings: diagnostics,
            ..loaded
        }),
        None => Err(Errors { diagnostics }),
    }
}

/// The control socket of a possibly invalid main file, configured or by default. Assumes root's daemon for every
/// caller.
pub(super) fn control_socket(bytes: &[u8], path: &Path, world: &dyn World) -> Option<PathBuf> {
    let mut diagnostics = Diagnostics::default();
    let source = Source::new(path, 0, std::str::from_utf8(bytes).ok()?);
    let reading = Sources::of(world);
    let global = sections(&source, &reading, &mut diagnostics)?.global;
    let global = global.unwrap_or_else(|| read_global(DeTable::new(), &source, &reading, &mut diagnostics));
    let mut report = Report::global(&mut diagnostics).with(world);
    global::control(&global.control, path, &[], &mut report)
}

/// The jobs' socket of a possibly invalid main file, configured or by default.
pub(super) fn jobs_socket(bytes: &[u8], path: &Path, world: &dyn World) -> Option<PathBuf> {
    let mut diagnostics = Diagnostics::default();
    let source = Source::new(path, 0, std::str::from_utf8(bytes).ok()?);
    let jobs = sections(&source, &Sources::of(world), &mut diagnostics)?.jobs?;
    let mut report = Report::global(&mut diagnostics).with(world);
    jobs::socket(&jobs.draft, &mut report)
}

/// The patterns of `include`, relative to the main file's directory.
pub(super) fn include_patterns(bytes: &[u8], path: &Path, world: &dyn World) -> Option<Vec<PathBuf>> {
    let mut diagnostics = Diagnostics::default();
    let source = Source::new(path, 0, std::str::from_utf8(bytes).ok()?);
    let reading = Sources::of(world);
    let global = sections(&source, &reading, &mut diagnostics)?.global;
    let global = global.unwrap_or_else(|| read_global(DeTable::new(), &source, &reading, &mut diagnostics));
    let base = path.parent().unwrap_or(Path::new(""));
    Some(
        global::patterns(&global, path)
            .map(|pattern| base.join(pattern))
            .collect(),
    )
}

fn resolve(text: &str, path: &Path, reading: &Sources<'_>, diagnostics: &mut Diagnostics) -> Option<Loaded> {
    let world = reading.world;
    let source = Source::new(path, 0, text);
    let Sections {
        global,
        pools: mut texts,
        jobs,
    } = sections(&source, reading, diagnostics)?;
    let global = global.unwrap_or_else(|| read_global(DeTable::new(), &source, reading, diagnostics));
    let mut mentions = Vec::new();
    let included = include(&global, path, reading, &mut mentions, diagnostics);
    reading.overrides.finish(diagnostics);
    texts.extend(included);
    mentions.extend(texts.iter().map(|text| Mention {
        pool: text.name.clone(),
        file: text.location.file.clone(),
        order: text.location.order,
    }));
    let texts = unique(texts, diagnostics);
    let mut config = whole(&global, &texts, jobs.as_ref(), path, world, diagnostics)?;
    if texts.is_empty() && config.global.watch.is_empty() && !diagnostics.has_errors() {
        let write =
            "a table [pool.NAME] with listen, pm, max_children and [pool.NAME.application], or let forkyard init php \
             (python, ruby, node, sites) write it"
                .to_owned();
        loose(diagnostics, source.whole(), "pool", Kind::Missing { write });
    }
    config.included = skip::included(&mentions);
    let location = |text: &PoolText| (text.name.clone(), text.runtime_location().clone());
    let locations = texts.iter().map(location).collect();
    let places = texts
        .iter()
        .map(|text| (text.name.clone(), places(text)))
        .collect();
    skip::leave_out(&mut config, &mentions, diagnostics).then_some(Loaded {
        config,
        warnings: Vec::new(),
        locations,
        places,
    })
}

/// The places of the keys that are checked when the configuration is read.
fn places(text: &PoolText) -> Vec<(&'static str, Location)> {
    let draft = &text.draft;
    let place = |field: Option<&Location>, key| field.map(|location| (key, location.clone()));
    let paths = draft.confine_read.location().or(draft.confine_write.location());
    let all = [
        place(listen::written(draft).map(|it| &it.location), "listen"),
        place(draft.release.location(), "release"),
        place(draft.env_file.location(), "env_file"),
        place(draft.apparmor_hat.location(), "apparmor_hat"),
        place(paths, "confine.read, confine.write"),
        place(
            draft.confine_deny_system_calls.location(),
            "confine.deny_system_calls",
        ),
        place(draft.confine_private_tmp.location(), "confine.private_tmp"),
    ];
    all.into_iter().flatten().collect()
}

/// Resolves all drafts and leaves out invalid pools. Returns `None` if php-fpm would not start.
fn whole(
    global: &GlobalDraft,
    texts: &[PoolText],
    jobs: Option<&JobsText>,
    path: &Path,
    world: &dyn World,
    diagnostics: &mut Diagnostics,
) -> Option<Config> {
    let allow_root = global.allow_root.or(false);
    let has_autopilot = texts.iter().any(|text| text.draft.max_children.is_auto());
    let memory = has_autopilot.then(|| world.memory()).flatten();
    let mut pools = Vec::new();
    for text in texts {
        let mut report = Report::pool(diagnostics, &text.name).with(world);
        match pool::resolve(text, allow_root, memory, &mut report) {
            Some(pool) => pools.push((text, pool)),
            None if report.is_php_fpm() => {
                report.fail(format!("[pool {}] it is not available", text.name));
                return None;
            }
            None => {}
        }
    }
    if !diagnostics.is_php_fpm() {
        addresses::check(&pools, world, diagnostics);
        helpers::check(&pools, world, diagnostics);
    }
    preloaders(&mut pools, world, diagnostics);
    let global = global::resolve(global, path, &pools, &mut Report::global(diagnostics).with(world));
    let jobs = jobs.and_then(|jobs| jobs::resolve(jobs, texts, &pools, world, diagnostics));
    if let Some(jobs) = &jobs {
        jobs::prepare_pools(jobs, &mut pools);
    }
    let is_refused = diagnostics.is_php_fpm() && diagnostics.has_errors();
    let of_start = |(text, pool): &(&PoolText, Pool)| (pool.name.clone(), start_settings::of(text, pool));
    let of_start = pools
        .iter()
        .map(of_start)
        .filter(|(_, settings)| !settings.is_empty());
    let start_settings = of_start.collect();
    (!is_refused).then(|| Config {
        path: path.to_owned(),
        global,
        pools: pools.into_iter().map(|(_, pool)| Arc::new(pool)).collect(),
        skipped: Vec::new(),
        included: BTreeMap::new(),
        start_settings,
        jobs: jobs.map(Box::new),
    })
}

pub(super) struct Sources<'w> {
    pub(super) world: &'w dyn World,
    pub(super) overrides: Overrides,
    pub(super) effective: Option<RefCell<Vec<Effective>>>,
}

impl<'w> Sources<'w> {
    fn of(world: &'w dyn World) -> Sources<'w> {
        Sources {
            world,
            overrides: Overrides::of(world),
            effective: None,
        }
    }

    fn keys<'t>(&self, table: DeTable<'t>, source: &Source<'t>, pool: Option<&str>) -> FlatKeys<'t> {
        let mut keys = FlatKeys::new(table, source, pool);
        keys.override_by(self.overrides.for_table(pool));
        if let Some(effective) = &self.effective {
            effective.borrow_mut().push(Effective::of(pool, &keys));
        }
        keys
    }
}

fn read_global<'t>(
    table: DeTable<'t>,
    source: &Source<'t>,
    reading: &Sources<'_>,
    diagnostics: &mut Diagnostics,
) -> GlobalDraft {
    let mut keys = reading.keys(table, source, None);
    let mut report = Report::global(diagnostics);
    let global = GlobalDraft::read(&mut keys, &mut report);
    keys.finish(Section::Global, &mut report);
    global
}

#[derive(Default)]
struct Sections {
    global: Option<GlobalDraft>,
    pools: Vec<PoolText>,
    jobs: Option<JobsText>,
}

fn sections(source: &Source<'_>, reading: &Sources<'_>, diagnostics: &mut Diagnostics) -> Option<Sections> {
    let mut found = Sections::default();
    for (key, value) in source.parse(diagnostics)? {
        let location = source.location(key.span().start);
        let name: &str = key.get_ref();
        match (name, Spanned::into_inner(value)) {
            ("global", DeValue::Table(table)) => {
                found.global = Some(read_global(table, source, reading, diagnostics));
            }
            ("pool", DeValue::Table(table)) => {
                found.pools = pool_tables(table, source, reading, diagnostics);
            }
            ("jobs", DeValue::Table(table)) => {
                found.jobs = Some(jobs::read(location, table, source, diagnostics));
            }
            ("jobs" | "global", _) => not_a_table(diagnostics, location, name, &format!("[{name}]")),
            ("pool", _) => not_a_table(diagnostics, location, "pool", "[pool.NAME]"),
            (_, value) => {
                let advice = top_level_advice(name, &value);
                loose(
                    diagnostics,
                    location,
                    &super::flat_keys::dotted(&[name.to_owned()]),
                    Kind::UnknownKey { advice },
                );
            }
        }
    }
    Some(found)
}

fn top_level_advice(name: &str, value: &DeValue<'_>) -> Option<String> {
    let is_table = value.is_table();
    match known::nearest_word(name, &["global", "pool", "jobs"]) {
        Some("pool") => {
            let mut tables = value.as_table().into_iter().flatten();
            let first = tables.find(|(_, value)| value.get_ref().is_table());
            Some(first.map_or_else(
                || "a pool is written [pool.NAME]".to_owned(),
                |(name, _)| {
                    let name = super::flat_keys::dotted(&[name.get_ref().clone().into_owned()]);
                    format!("did you mean [pool.{name}]?")
                },
            ))
        }
        Some(section) => Some(format!("did you mean [{section}]?")),
        None if is_table => Some(format!("if it is a pool, write [pool.{name}]")),
        None => known::advice(Section::Top, name, &[]),
    }
}

fn pool_tables(
    table: DeTable<'_>,
    source: &Source<'_>,
    reading: &Sources<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<PoolText> {
    let mut pools = Vec::new();
    let mut has_keys = false;
    for (key, value) in table {
        let offset = key.span().start;
        let location = source.location(offset);
        let name = key.into_inner().into_owned();
        match Spanned::into_inner(value) {
            DeValue::Table(table) => {
                let flat_keys = reading.keys(table, source, Some(&name));
                let mut report = Report::pool(diagnostics, &name);
                let text = pool::read(name, location, flat_keys, &mut report);
                pools.push((offset, text));
            }
            // Keys of a pool without a name: report once.
            _ if std::mem::replace(&mut has_keys, true) => {}
            _ => not_a_table(diagnostics, location, &format!("pool.{name}"), "[pool.NAME]"),
        }
    }
    pools.sort_by_key(|(offset, _)| *offset);
    pools.into_iter().map(|(_, text)| text).collect()
}

/// Reads included files. Adds pools of unreadable files to `mentions` if their names are known.
fn include(
    global: &GlobalDraft,
    main: &Path,
    reading: &Sources<'_>,
    mentions: &mut Vec<Mention>,
    diagnostics: &mut Diagnostics,
) -> Vec<PoolText> {
    let mut pools = Vec::new();
    let base = main.parent().unwrap_or(Path::new(""));
    let whole = || Source::new(main, 0, "").whole();
    let mut seen: HashSet<PathBuf> = HashSet::from([main.to_owned()]);
    let mut files = Vec::new();
    let location = (global.include.written()).map_or_else(whole, |written| written.location.clone());
    for pattern in global::patterns(global, main) {
        let mut report = Report::global(diagnostics);
        match reading.world.files(&base.join(&pattern)) {
            Ok(found) if found.is_empty() => {
                // The default include directory may be missing.
                if let Some(written) = global.include.written() {
                    let problem = format!("{} matches no file", quoted(&pattern));
                    report.warn(written, problem, "nothing is included by it");
                }
            }
            Ok(found) => files.extend(found.into_iter().filter(|file| seen.insert(file.clone()))),
            Err(reason) => {
                let problem = format!("{}: {reason}", quoted(&pattern));
                let kind = Kind::rule(problem, "make the directory readable");
                report.error(&location, "include", kind);
            }
        }
    }
    if files.len() > MAX_INCLUDED {
        let problem = format!("{} files match", files.len());
        let kind = Kind::rule(problem, format!("include at most {MAX_INCLUDED}"));
        Report::global(diagnostics).error(&location, "include", kind);
        files.truncate(MAX_INCLUDED);
    }
    for (at, file) in files.iter().enumerate() {
        pools.extend(included_pools(file, at + 1, reading, mentions, diagnostics).unwrap_or_default());
    }
    pools
}

fn included_pools(
    file: &Path,
    order: usize,
    reading: &Sources<'_>,
    mentions: &mut Vec<Mention>,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<PoolText>> {
    let bytes = match reading.world.read(file) {
        Ok(bytes) => bytes,
        Err(error) => {
            let location = Source::new(file, order, "").whole();
            let reason = error.to_string();
            diagnostics.push(Diagnostic::error(location, Kind::Unreadable { reason }));
            return None;
        }
    };
    let source = Source::new(file, order, text(&bytes, file, order, diagnostics)?);
    let Some(sections) = sections(&source, reading, diagnostics) else {
        mentions.extend(source.pool_names().into_iter().map(|pool| Mention {
            pool,
            file: source.whole().file,
            order,
        }));
        return None;
    };
    for (name, is_there) in [
        ("global", sections.global.is_some()),
        ("jobs", sections.jobs.is_some()),
    ] {
        if is_there {
            let kind = Kind::rule("is not read from an included file", "move it to the main file");
            loose(diagnostics, source.whole(), name, kind);
        }
    }
    Some(sections.pools)
}

fn text<'b>(bytes: &'b [u8], path: &Path, order: usize, diagnostics: &mut Diagnostics) -> Option<&'b str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let before = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            let location = Source::new(path, order, before).location(before.len());
            let advice = Some("save the file as UTF-8".to_owned());
            let problem = "this is not UTF-8".to_owned();
            diagnostics.push(Diagnostic::error(location, Kind::Syntax { problem, advice }));
            None
        }
    }
}

fn unique(texts: Vec<PoolText>, diagnostics: &mut Diagnostics) -> Vec<PoolText> {
    let mut kept: Vec<PoolText> = Vec::new();
    let mut locations: HashMap<String, Location> = HashMap::new();
    for text in texts {
        match locations.get(&text.name) {
            Some(first) => {
                let problem = format!("this pool is already defined at {first}");
                let kind = Kind::rule(problem, "give one of the two another name");
                diagnostics.push(Diagnostic {
                    pool: Some(text.name),
                    ..Diagnostic::error(text.location, kind)
                });
            }
            None => {
                locations.insert(text.name.clone(), text.location.clone());
                kept.push(text);
            }
        }
    }
    kept
}

/// Chooses default preloaders for PHP pools, and reports pools that can't use a zygote as configured.
fn preloaders(pools: &mut [(&PoolText, Pool)], world: &dyn World, diagnostics: &mut Diagnostics) {
    for (text, pool) in pools {
        let ApplicationDraft::Php(draft) = &text.application else {
            continue;
        };
        let Some(written) = draft.preloader.written() else {
            sharing::choose(pool, world.is_root());
            continue;
        };
        let refusal = sharing::wants_zygote(pool).then(|| sharing::zygote_refusal(pool));
        if let Some((problem, remedy)) = refusal.flatten() {
            let mut report = Report::pool(diagnostics, &pool.name);
            report.fail(format!("[pool {}] forkyard.preloader: {problem}", pool.name));
            report.rule(written, problem, remedy);
        }
    }
}

fn not_a_table(diagnostics: &mut Diagnostics, location: Location, key: &str, write: &str) {
    let kind = Kind::rule("is not a table", format!("write {write}"));
    loose(diagnostics, location, key, kind);
}

fn loose(diagnostics: &mut Diagnostics, location: Location, key: &str, kind: Kind) {
    diagnostics.push(Diagnostic {
        key: Some(key.to_owned()),
        ..Diagnostic::error(location, kind)
    });
}
