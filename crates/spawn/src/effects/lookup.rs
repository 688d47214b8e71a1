//! User database lookups.

use crate::plan::Account;
use forkyard_sys::{self as sys, identity};
use identity::Identity;

/// Looks up a plan's user.
///
/// # Errors
/// The user or group does not exist.
pub fn account(user: &str, group: Option<&str>) -> sys::Result<Account> {
    let identity = Identity::look_up(user, group)?;
    Ok(account_of(identity, user))
}

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
