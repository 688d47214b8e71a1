//! Resolves a pool's confinement.

use std::path::PathBuf;

use super::pool::absolute;
use crate::draft::{PoolDraft, PoolText};
use crate::flat_keys::{Field, Written};
use crate::model::{Cgroup, Confine, Paths, Shares};
use crate::report::{Report, WorldReport};
use crate::units::{Size, Text, Texts};
use crate::value::quoted;

/// A single PHP worker needs more.
const LEAST_MEMORY_BYTES: u64 = 4 << 20;
const CPU_PERCENT: (i64, i64) = (1, 100_000);
const PIDS: (i64, i64) = (2, 4_194_304);
/// `cpu.weight`.
const CPU_WEIGHT: (i64, i64) = (1, 10_000);
/// The maximum for directories and AppArmor profiles.
const LONGEST_NAME: usize = 255;

pub(super) fn resolve(text: &PoolText, report: &mut WorldReport<'_>) -> Confine {
    let draft = &text.draft;
    Confine {
        apparmor_hat: hat(&draft.apparmor_hat, report),
        paths: paths(draft, report),
        deny_system_calls: draft.confine_deny_system_calls.or(false),
        private_tmp: draft.confine_private_tmp.or(false) && {
            if !report.world.is_root() {
                report.refuse(
                    &draft.confine_private_tmp,
                    "only a master that runs as root can do this",
                    "leave it out, or start forkyard as root",
                );
            }
            report.world.is_root()
        },
        cgroup: cgroup(text, report),
    }
}

fn hat(field: &Field<Text>, report: &mut Report<'_>) -> Option<String> {
    let written = field.written()?;
    let name = &written.value.0;
    if report.is_php_fpm() {
        return Some(name.clone());
    }
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains(['/', ' ', '^', '\n']) {
        let problem = format!("{} can't be the name of a hat", quoted(name));
        report.rule(
            written,
            problem,
            "write the hat's name alone, without its profile",
        );
        return None;
    }
    Some(name.clone())
}

fn paths(draft: &PoolDraft, report: &mut WorldReport<'_>) -> Option<Paths> {
    if draft.confine_read.is_absent() && draft.confine_write.is_absent() {
        return None;
    }
    let chroot = draft.chroot.text();
    let mut list = |field: &Field<Texts>| -> Vec<PathBuf> {
        let Some(written) = field.written() else {
            return Vec::new();
        };
        let existing = |one: Written<Text>| {
            let path = absolute(&one, report)?;
            let root = chroot.filter(|_| report.world.is_root()).unwrap_or("/");
            let outside = PathBuf::from(root).join(path.strip_prefix("/").unwrap_or(&path));
            if !report.world.exists(&outside) {
                let problem = format!("{} does not exist", quoted(&outside.to_string_lossy()));
                report.rule(written, problem, "make it, or leave it out");
            }
            Some(path)
        };
        written.each().filter_map(existing).collect()
    };
    let (read, write) = (list(&draft.confine_read), list(&draft.confine_write));
    if write.is_empty() {
        if let Some(written) = draft.confine_read.written().or(draft.confine_write.written()) {
            report.rule(
                written,
                "there is nothing that may be written to",
                "name at least one directory in confine.write: PHP keeps uploads, sessions and OPcache's lock somewhere",
            );
        }
    }
    Some(Paths { read, write })
}

fn cgroup(text: &PoolText, report: &mut Report<'_>) -> Option<Cgroup> {
    let draft = &text.draft;
    let cpu_percent = report.range(&draft.cgroup_cpu_percent, CPU_PERCENT.0, CPU_PERCENT.1);
    let pids_max = report.range(&draft.cgroup_pids_max, PIDS.0, PIDS.1);
    let memory_max = memory(&draft.cgroup_memory_max, report);
    let Some(written) = draft.cgroup_parent.written() else {
        let memory = draft.cgroup_memory_max.written().map(|it| &it.location);
        let cpu = draft.cgroup_cpu_percent.written().map(|it| &it.location);
        let pids = draft.cgroup_pids_max.written().map(|it| &it.location);
        if let (Some(location), true) = (memory.or(cpu).or(pids), draft.cgroup_parent.is_absent()) {
            report.missing(
                location,
                "cgroup.parent",
                "parent = \"/sys/fs/cgroup/forkyard\", or a group that is delegated to forkyard",
            );
        }
        return None;
    };
    let parent = absolute(written, report)?;
    if text.name.contains('/') || text.name.starts_with('.') || text.name.len() > LONGEST_NAME {
        let problem = format!("the pool's name {} can't be a group's name", quoted(&text.name));
        report.rule(
            written,
            problem,
            "give the pool a name without /, not beginning with a dot",
        );
        return None;
    }
    Some(Cgroup {
        parent,
        memory_max: memory_max.or(draft.memory_max.written().map(|it| it.value.0)),
        cpu_percent,
        pids_max,
        cpu_weight: draft
            .cpu_weight
            .written()
            .and_then(|it| u32::try_from(it.value.0).ok()),
    })
}

fn memory(field: &Field<Size>, report: &mut Report<'_>) -> Option<u64> {
    let written = field.written()?;
    if written.value.0 < LEAST_MEMORY_BYTES {
        let problem = format!("{} bytes are too few for a single worker", written.value.0);
        report.rule(written, problem, "give at least \"4M\"");
    }
    Some(written.value.0)
}

/// The pool's shares without a configured cgroup.
pub(super) fn shares(draft: &PoolDraft, report: &mut Report<'_>) -> Shares {
    let cpu_weight = report.range(&draft.cpu_weight, CPU_WEIGHT.0, CPU_WEIGHT.1);
    let memory_max = memory(&draft.memory_max, report);
    match draft.cgroup_parent.is_absent() {
        true => Shares {
            cpu_weight,
            memory_max,
        },
        false => Shares::default(),
    }
}
