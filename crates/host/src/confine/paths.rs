//! Restricts a pool to certain paths (Landlock, landlock(7)).

use super::ConfineError;
use forkyard_config::{Application, Paths};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus,
};
use std::path::Path;

const KEY: &str = "confine.read, confine.write";
/// Older kernels enforce a subset.
const KNOWN: ABI = ABI::V5;

/// Readable and executable.
const SYSTEM: &[&str] = &["/bin", "/lib", "/lib32", "/lib64", "/sbin", "/usr"];
/// Host and user names, time zones, certificates.
const SYSTEM_FILES: &[&str] = &[
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/php",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/timezone",
];
/// Readable and writable.
const DEVICES: &[&str] = &[
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/urandom",
    "/dev/zero",
];

pub(super) fn check() -> Result<(), ConfineError> {
    ruleset(CompatLevel::HardRequirement, ABI::V1).map(drop).map_err(|_| {
        ConfineError::new(
            KEY,
            "this kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, and landlock in lsm= on its command line); \
             leave them out",
        )
    })
}

pub(super) fn restrict(paths: &Paths, application: &Application) -> Result<(), ConfineError> {
    let failed = |error: RulesetError| ConfineError::new(KEY, error.to_string());
    let mut rules = ruleset(CompatLevel::BestEffort, KNOWN).map_err(failed)?;
    let (read, all) = (AccessFs::from_read(KNOWN), AccessFs::from_all(KNOWN));
    for path in SYSTEM.iter().chain(SYSTEM_FILES) {
        rules = add_if_there(rules, Path::new(path), read)?;
    }
    for path in DEVICES {
        rules = add_if_there(rules, Path::new(path), AccessFs::ReadFile | AccessFs::WriteFile)?;
    }
    if let Some(php) = application.php() {
        for path in php.php_ini.iter().chain(&php.library) {
            rules = add_if_there(rules, path, read)?;
        }
    }
    for (list, access) in [(&paths.read, read), (&paths.write, all)] {
        for path in list {
            rules = add(rules, path, access)?;
        }
    }
    enforce(Ok(rules))
}

pub(super) fn close_writing() -> Result<(), ConfineError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_write(KNOWN));
    enforce(rules.and_then(Ruleset::create))
}

fn enforce(rules: Result<RulesetCreated, RulesetError>) -> Result<(), ConfineError> {
    let status = rules
        .and_then(RulesetCreated::restrict_self)
        .map_err(|error| ConfineError::new(KEY, error.to_string()))?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(ConfineError::new(KEY, "this kernel enforces no such rules"));
    }
    Ok(())
}

fn ruleset(level: CompatLevel, abi: ABI) -> Result<RulesetCreated, RulesetError> {
    let all: BitFlags<AccessFs> = AccessFs::from_all(abi);
    Ruleset::default()
        .set_compatibility(level)
        .handle_access(all)?
        .create()
}

fn add_if_there(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, ConfineError> {
    if path.exists() {
        add(rules, path, access)
    } else {
        Ok(rules)
    }
}

fn add(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, ConfineError> {
    let failed =
        |error: &dyn std::fmt::Display| ConfineError::new(KEY, format!("{}: {error}", path.display()));
    let file = PathFd::new(path).map_err(|error| failed(&error))?;
    // Landlock rejects directory rights for a file.
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(KNOWN)
    };
    rules
        .add_rule(PathBeneath::new(file, access))
        .map_err(|error| failed(&error))
}
