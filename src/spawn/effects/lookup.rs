//! What this machine knows of users and of deployed code.

use crate::spawn::handshake::response::clean;
use crate::spawn::plan::{Account, Plan};
use crate::sys::{self, dir, identity};
use identity::Identity;
use std::os::fd::AsFd;

/// A plan's user, looked up.
///
/// # Errors
/// A user or group that does not exist.
pub fn account(user: &str, group: Option<&str>) -> sys::Result<Account> {
    let identity = Identity::look_up(user, group)?;
    Ok(account_of(identity, user))
}

/// The user that this process runs as.
pub fn own_account() -> Account {
    let identity = Identity::current();
    let name = identity.name.clone().unwrap_or_else(|| identity.uid.to_string());
    account_of(identity, &name)
}

fn account_of(identity: Identity, user: &str) -> Account {
    let (shell, group) = identity::shell_and_group(identity.uid, identity.gid);
    Account {
        user: identity.name.unwrap_or_else(|| user.to_owned()),
        group: group.unwrap_or_else(|| identity.gid.to_string()),
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups,
        home: identity.home,
        shell,
    }
}

/// What an application that is deployed says is its version: the file REVISION, or, where the directory is a symbolic
/// link, the last part of what it points to.
pub fn code_revision(plan: &Plan) -> Option<String> {
    const MOST: usize = 128;
    let written = dir::open(&plan.app_root)
        .and_then(|root| dir::read(root.as_fd(), "REVISION", MOST))
        .ok()
        .flatten();
    let text = written.map(|content| clean(&content.bytes));
    text.filter(|text| !text.is_empty()).or_else(|| {
        let target = std::fs::read_link(&plan.app_root).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    })
}
