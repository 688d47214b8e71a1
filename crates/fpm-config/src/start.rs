//! Checks made only by a real start or only by `-t`: users, groups and socket path lengths.

use super::journal::Failed;
use super::parse::{PoolText, Written};
use super::validate::Context;
use forkyard_config::World;
use forkyard_config::php::is_before;
use forkyard_config::php_fpm::{is_tcp, too_long};

/// php-fpm's meaningless errno.
const NO_REASON: &str = ": Success (0)";

/// Checks for `-t` that users and groups exist and socket paths fit. A real start truncates long paths.
pub(super) fn test_pools(written: &Written, context: &mut Context<'_>) -> Result<(), Failed> {
    for pool in &written.pools {
        exist(pool, &["user", "group"], "", context)?;
        fits(pool, context)?;
        exist(pool, &["listen.owner", "listen.group"], NO_REASON, context)?;
    }
    Ok(())
}

fn exist(pool: &PoolText, names: &[&str], tail: &str, context: &mut Context<'_>) -> Result<(), Failed> {
    for name in names {
        let Some(value) = pool.values.full(name) else {
            continue;
        };
        let is_group = name.ends_with("group");
        let id = if is_group {
            gid(value, context.machine)
        } else {
            uid(value, context.machine)
        };
        if id.is_none() {
            let kind = if is_group { "gid for group" } else { "uid for user" };
            let text = format!("[pool {}] cannot get {kind} '{value}'{tail}", pool.name);
            return Err(context.journal.error(text));
        }
    }
    Ok(())
}

/// php-fpm checks this since 8.4.
fn fits(pool: &PoolText, context: &mut Context<'_>) -> Result<(), Failed> {
    let path = pool.values.text("listen").unwrap_or_default();
    if is_before(context.options.version(), "8.4") || is_tcp(path) {
        return Ok(());
    }
    match too_long(path, &pool.name) {
        Some(problem) => Err(context.journal.error(format!("{problem}{NO_REASON}"))),
        None => Ok(()),
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn uid(text: &str, world: &dyn World) -> Option<u32> {
    if is_number(text) {
        Some(text.parse().unwrap_or(u32::MAX))
    } else {
        world.user(text).map(|ids| ids.uid)
    }
}

fn gid(text: &str, world: &dyn World) -> Option<u32> {
    if is_number(text) {
        Some(text.parse().unwrap_or(u32::MAX))
    } else {
        world.group(text)
    }
}

pub(super) fn resolve_identities(written: &Written, context: &mut Context<'_>) -> Result<(), Failed> {
    for pool in &written.pools {
        if context.machine.is_root() {
            exist(pool, &["user", "group"], "", context)?;
            refuse_root(pool, context)?;
        } else {
            ignored(pool, context);
        }
        exist(pool, &["listen.owner", "listen.group"], NO_REASON, context)?;
    }
    Ok(())
}

fn refuse_root(pool: &PoolText, context: &mut Context<'_>) -> Result<(), Failed> {
    if context.options.allow_root {
        return Ok(());
    }
    let world: &dyn World = context.machine;
    let user = pool.values.full("user");
    let ids = user.and_then(|user| world.entry(user));
    let uid = user.and_then(|user| uid(user, world)).unwrap_or(0);
    let group = pool.values.full("group").and_then(|group| gid(group, world));
    let gid = group.or(ids.map(|ids| ids.gid)).unwrap_or(0);
    if uid == 0 || gid == 0 {
        let text = format!(
            "[pool {}] please specify user and group other than root",
            pool.name
        );
        return Err(context.journal.error(text));
    }
    Ok(())
}

fn ignored(pool: &PoolText, context: &mut Context<'_>) {
    let values = &pool.values;
    let written = [
        ("user", values.full("user").is_some()),
        ("group", values.full("group").is_some()),
        ("chroot", values.full("chroot").is_some()),
        ("process.priority", values.is_written("process.priority")),
    ];
    for (name, _) in written.into_iter().filter(|(_, is_written)| *is_written) {
        let pool = &pool.name;
        let text = format!("[pool {pool}] '{name}' directive is ignored when FPM is not running as root");
        context.journal.notice(text);
    }
}
