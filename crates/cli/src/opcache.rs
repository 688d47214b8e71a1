//! `forkyard opcache`: the state of OPcache and APCu of PHP pools.

use super::control::{CommandResult, Daemon, answer, printable, tell, unexpected};
use super::table::{self, local};
use clap::Args;
use forkyard_protocol::code_cache::{Apcu, ApcuState, Opcache, OpcacheState, PoolCaches};
use forkyard_protocol::control::{Answer, Request};
use std::fmt::Write as _;
use std::process::ExitCode;

/// The arguments.
#[derive(Debug, Args)]
pub(super) struct OpcacheArguments {
    #[command(flatten)]
    daemon: Daemon,
    /// A pool, or an application pool with all of its applications; all by default
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &OpcacheArguments) -> ExitCode {
    tell(shown(arguments))
}

fn shown(arguments: &OpcacheArguments) -> CommandResult {
    let request = Request::Opcache {
        pool: arguments.pool.clone(),
    };
    let caches = match answer(&arguments.daemon, &request)? {
        Answer::Caches { caches } => caches,
        other => return Err(unexpected(other)),
    };
    Ok(table::shown(&caches, arguments.json, |caches| {
        match caches.is_empty() {
            true => "no pool runs with PHP\n".to_owned(),
            false => caches.iter().map(lines).collect(),
        }
    }))
}

fn lines(caches: &PoolCaches) -> String {
    let mut text = format!("pool {}\n", printable(&caches.pool));
    if let Some(why) = &caches.unknown {
        let _ = writeln!(text, "  unknown: {}", printable(why));
    }
    if let Some(opcache) = &caches.opcache {
        match opcache {
            OpcacheState::Missing => text.push_str("  OPcache: not loaded\n"),
            OpcacheState::Disabled => text.push_str("  OPcache: disabled\n"),
            OpcacheState::FilesOnly => text.push_str("  OPcache: in files only\n"),
            OpcacheState::Enabled(opcache) => opcache_lines(opcache, &mut text),
        }
    }
    if let Some(apcu) = &caches.apcu {
        match apcu {
            ApcuState::Missing => {}
            ApcuState::Disabled => text.push_str("  APCu: disabled\n"),
            ApcuState::Enabled(apcu) => apcu_line(apcu, &mut text),
        }
    }
    text
}

fn opcache_lines(opcache: &Opcache, text: &mut String) {
    let state = match (opcache.full, opcache.restart_pending) {
        (_, true) => "a restart is pending",
        (true, false) => "full: new scripts are not kept",
        (false, false) => "well",
    };
    let all = opcache
        .used
        .saturating_add(opcache.free)
        .saturating_add(opcache.wasted);
    let _ = writeln!(
        text,
        "  OPcache: {state}; {} of {} used, {} free, {} wasted",
        size(opcache.used),
        size(all),
        size(opcache.free),
        size(opcache.wasted)
    );
    let _ = writeln!(
        text,
        "    {} scripts, {} of {} keys; {} hits, {} misses ({})",
        opcache.scripts,
        opcache.keys,
        opcache.max_keys,
        opcache.hits,
        opcache.misses,
        rate(opcache.hits, opcache.misses)
    );
    if let (Some(used), Some(free)) = (opcache.strings_used, opcache.strings_free) {
        let all = size(used.saturating_add(free));
        let _ = writeln!(text, "    interned strings: {} of {all}", size(used));
    }
    let restarts = &opcache.restarts;
    let _ = write!(
        text,
        "    restarts: {} for memory, {} for keys, {} by opcache_reset()",
        restarts.memory, restarts.keys, restarts.manual
    );
    let last = opcache
        .last_restart
        .map(|time| format!(", the last {}", local(time)));
    let _ = writeln!(
        text,
        "{}; since {}",
        last.unwrap_or_default(),
        local(opcache.started)
    );
}

fn apcu_line(apcu: &Apcu, text: &mut String) {
    let _ = writeln!(
        text,
        "  APCu: {} of {} used; {} entries; {} hits, {} misses ({}); {} inserts, emptied {} times",
        size(apcu.used),
        size(apcu.used.saturating_add(apcu.free)),
        apcu.entries,
        apcu.hits,
        apcu.misses,
        rate(apcu.hits, apcu.misses),
        apcu.inserts,
        apcu.expunges
    );
}

fn size(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

fn rate(hits: u64, misses: u64) -> String {
    let all = hits.saturating_add(misses);
    let rate = hits.saturating_mul(1000).checked_div(all);
    rate.map_or("-".to_owned(), |rate| format!("{}.{} %", rate / 10, rate % 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_words() {
        let caches = |opcache, apcu| PoolCaches {
            pool: "www".to_owned(),
            unknown: None,
            opcache: Some(opcache),
            apcu: Some(apcu),
        };
        let opcache = Opcache {
            used: 9 << 20,
            free: 1 << 20,
            hits: 2,
            misses: 1,
            full: true,
            ..Opcache::default()
        };
        let full = lines(&caches(
            OpcacheState::Enabled(Box::new(opcache)),
            ApcuState::Missing,
        ));
        assert!(
            full.starts_with(
                "pool www\n  OPcache: full: new scripts are not kept; 9.0 MiB of 10.0 MiB used, 1.0 MiB free, 0.0 MiB wasted\n"
            ),
            "{full}"
        );
        assert!(full.contains("2 hits, 1 misses (66.6 %)"), "{full}");
        let off = lines(&caches(OpcacheState::Disabled, ApcuState::Disabled));
        assert_eq!(off, "pool www\n  OPcache: disabled\n  APCu: disabled\n");
        let empty = lines(&caches(OpcacheState::Missing, ApcuState::Enabled(Box::default())));
        assert!(
            empty.contains("OPcache: not loaded\n  APCu: 0.0 MiB of"),
            "{empty}"
        );
        let unknown = PoolCaches {
            unknown: Some("PHP\u{1b} is starting".to_owned()),
            opcache: None,
            apcu: None,
            ..caches(OpcacheState::Missing, ApcuState::Missing)
        };
        assert_eq!(lines(&unknown), "pool www\n  unknown: PHP? is starting\n");
    }
}
