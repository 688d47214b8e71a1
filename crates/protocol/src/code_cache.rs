//! The state of a PHP pool's OPcache and APCu, and how a process of the pool reports it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

/// The longest report, in bytes.
pub const MOST_BYTES: usize = 32 << 10;

/// The caches of a pool, or of an application of an application pool.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PoolCaches {
    pub pool: String,
    /// Why the state is unknown.
    pub unknown: Option<String>,
    /// `None` if unknown.
    pub opcache: Option<OpcacheState>,
    /// `None` if unknown.
    pub apcu: Option<ApcuState>,
}

/// The caches of a pool as they were read last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastCaches {
    /// How long ago they were read.
    pub age_ms: u64,
    pub opcache: OpcacheState,
    pub apcu: ApcuState,
}

#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum OpcacheState {
    /// PHP has no OPcache.
    Missing,
    /// `opcache.enable` is off, or OPcache could not start.
    Disabled,
    /// It keeps code in files only (`opcache.file_cache_only`).
    FilesOnly,
    Enabled(Box<Opcache>),
}

/// Sizes are in bytes. Counters start with the cache.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Opcache {
    /// It keeps no more scripts until it restarts.
    pub full: bool,
    pub restart_pending: bool,
    pub used: u64,
    pub free: u64,
    /// Memory of outdated scripts, which only a restart frees.
    pub wasted: u64,
    pub strings_used: Option<u64>,
    pub strings_free: Option<u64>,
    pub scripts: u64,
    pub keys: u64,
    pub max_keys: u64,
    pub hits: u64,
    pub misses: u64,
    pub restarts: OpcacheRestarts,
    /// When the cache began, in seconds since 1970.
    pub started: u64,
    /// The last restart, in seconds since 1970. `None` if there was none.
    pub last_restart: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpcacheRestarts {
    /// Because its memory was full.
    pub memory: u64,
    /// Because `opcache.max_accelerated_files` was reached.
    pub keys: u64,
    /// By `opcache_reset()`.
    pub manual: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum ApcuState {
    /// PHP has no APCu.
    Missing,
    /// `apc.enabled` is off.
    Disabled,
    Enabled(Box<Apcu>),
}

/// Sizes are in bytes. Counters start with the cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apcu {
    pub used: u64,
    pub free: u64,
    pub entries: u64,
    pub hits: u64,
    pub misses: u64,
    pub inserts: u64,
    /// How often all entries were removed because the memory was full.
    pub expunges: u64,
}

/// Parses the report of a pool's process, which is untrusted. `None`: it is no report.
pub fn parse(report: &[u8]) -> Option<(OpcacheState, ApcuState)> {
    let report: Value = serde_json::from_slice(report).ok()?;
    Some((opcache(&report)?, apcu(&report)?))
}

fn opcache(report: &Value) -> Option<OpcacheState> {
    if !report.get("has_opcache")?.as_bool()? {
        return Some(OpcacheState::Missing);
    }
    let Some(status) = report.get("opcache") else {
        return Some(OpcacheState::Disabled);
    };
    if !status.get("opcache_enabled")?.as_bool()? {
        return Some(OpcacheState::Disabled);
    }
    if status.get("file_cache_only").and_then(Value::as_bool) == Some(true) {
        return Some(OpcacheState::FilesOnly);
    }
    let (memory, counts) = (status.get("memory_usage")?, status.get("opcache_statistics")?);
    let strings = status.get("interned_strings_usage");
    let of_strings = |key: &str| strings.and_then(|strings| number(strings, key));
    Some(OpcacheState::Enabled(Box::new(Opcache {
        full: status.get("cache_full")?.as_bool()?,
        restart_pending: status.get("restart_pending")?.as_bool()?,
        used: number(memory, "used_memory")?,
        free: number(memory, "free_memory")?,
        wasted: number(memory, "wasted_memory")?,
        strings_used: of_strings("used_memory"),
        strings_free: of_strings("free_memory"),
        scripts: number(counts, "num_cached_scripts")?,
        keys: number(counts, "num_cached_keys")?,
        max_keys: number(counts, "max_cached_keys")?,
        hits: number(counts, "hits")?,
        misses: number(counts, "misses")?,
        restarts: OpcacheRestarts {
            memory: number(counts, "oom_restarts")?,
            keys: number(counts, "hash_restarts")?,
            manual: number(counts, "manual_restarts")?,
        },
        started: number(counts, "start_time")?,
        last_restart: number(counts, "last_restart_time").filter(|time| *time > 0),
    })))
}

fn apcu(report: &Value) -> Option<ApcuState> {
    if !report.get("has_apcu")?.as_bool()? {
        return Some(ApcuState::Missing);
    }
    let (Some(counts), Some(memory)) = (report.get("apcu"), report.get("apcu_memory")) else {
        return Some(ApcuState::Disabled);
    };
    let all = number(memory, "num_seg")?.checked_mul(number(memory, "seg_size")?)?;
    let free = number(memory, "avail_mem")?;
    Some(ApcuState::Enabled(Box::new(Apcu {
        used: all.saturating_sub(free),
        free,
        entries: number(counts, "num_entries")?,
        hits: number(counts, "num_hits")?,
        misses: number(counts, "num_misses")?,
        inserts: number(counts, "num_inserts")?,
        expunges: number(counts, "expunges").or_else(|| number(counts, "cleanups"))?,
    })))
}

/// A number that PHP may write as a floating-point number.
fn number(object: &Value, key: &str) -> Option<u64> {
    let value = object.get(key)?;
    let rounded = |number: f64| (0.0..9e15).contains(&number).then_some(number as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = r#"{"has_opcache":true,"opcache":{"opcache_enabled":true,"cache_full":true,"restart_pending":false,
        "restart_in_progress":false,"memory_usage":{"used_memory":9,"free_memory":3,"wasted_memory":2,
        "current_wasted_percentage":1.5},"interned_strings_usage":{"buffer_size":8,"used_memory":5,"free_memory":3,
        "number_of_strings":1},"opcache_statistics":{"num_cached_scripts":4,"num_cached_keys":5,"max_cached_keys":223,
        "hits":7,"start_time":1700000000,"last_restart_time":0,"oom_restarts":1,"hash_restarts":2,"manual_restarts":3,
        "misses":6,"blacklist_misses":0,"blacklist_miss_ratio":0,"opcache_hit_rate":53.8}},"has_apcu":true,
        "apcu":{"num_slots":4099,"ttl":0,"num_hits":1.0,"num_misses":2,"num_inserts":3,"num_entries":4,"expunges":5},
        "apcu_memory":{"num_seg":2,"seg_size":100.0,"avail_mem":150.0}}"#;

    #[test]
    fn a_report_is_read() {
        let Some((OpcacheState::Enabled(opcache), ApcuState::Enabled(apcu))) = parse(FULL.as_bytes()) else {
            panic!("no report");
        };
        assert!(opcache.full && !opcache.restart_pending);
        assert_eq!((opcache.used, opcache.free, opcache.wasted), (9, 3, 2));
        assert_eq!((opcache.strings_used, opcache.strings_free), (Some(5), Some(3)));
        assert_eq!((opcache.scripts, opcache.keys, opcache.max_keys), (4, 5, 223));
        assert_eq!((opcache.hits, opcache.misses), (7, 6));
        assert_eq!(
            opcache.restarts,
            OpcacheRestarts {
                memory: 1,
                keys: 2,
                manual: 3
            }
        );
        assert_eq!((opcache.started, opcache.last_restart), (1_700_000_000, None));
        let expected = Apcu {
            used: 50,
            free: 150,
            entries: 4,
            hits: 1,
            misses: 2,
            inserts: 3,
            expunges: 5,
        };
        assert_eq!(*apcu, expected);
    }

    #[test]
    fn what_is_not_there_is_said() {
        for (report, opcache, apcu) in [
            (
                r#"{"has_opcache":false,"has_apcu":false}"#,
                OpcacheState::Missing,
                ApcuState::Missing,
            ),
            (
                r#"{"has_opcache":true,"has_apcu":true}"#,
                OpcacheState::Disabled,
                ApcuState::Disabled,
            ),
            (
                r#"{"has_opcache":true,"opcache":{"opcache_enabled":false},"has_apcu":false}"#,
                OpcacheState::Disabled,
                ApcuState::Missing,
            ),
            (
                r#"{"has_opcache":true,"opcache":{"opcache_enabled":true,"file_cache_only":true},"has_apcu":false}"#,
                OpcacheState::FilesOnly,
                ApcuState::Missing,
            ),
        ] {
            assert_eq!(parse(report.as_bytes()), Some((opcache, apcu)), "{report}");
        }
    }

    #[test]
    fn nonsense_is_no_report() {
        for wrong in [
            "",
            "{}",
            "[]",
            "null",
            r#"{"has_opcache":1,"has_apcu":false}"#,
            r#"{"has_opcache":true,"opcache":7,"has_apcu":false}"#,
            &FULL.replace("\"hits\":7", "\"hits\":-7"),
            &FULL.replace("\"seg_size\":100.0", "\"seg_size\":1e300"),
            &FULL.replace("\"cache_full\":true,", ""),
            &FULL[..FULL.len() - 1],
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn it_is_written_as_documented() {
        let caches = PoolCaches {
            pool: "www".to_owned(),
            unknown: None,
            opcache: Some(OpcacheState::Disabled),
            apcu: Some(ApcuState::Enabled(Box::default())),
        };
        let text = serde_json::to_string(&caches).unwrap();
        assert_eq!(
            text,
            r#"{"pool":"www","opcache":{"state":"disabled"},"apcu":{"state":"enabled","used":0,"free":0,"entries":0,"hits":0,"misses":0,"inserts":0,"expunges":0}}"#
        );
        assert_eq!(serde_json::from_str::<PoolCaches>(&text).unwrap(), caches);
    }
}
