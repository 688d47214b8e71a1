//! The system's user database, for user switching.

use forkyard_core::spawn::user::{Database, UserEntry};
use nix::unistd::{Gid, Group, Uid, User};

/// Lookups by getpwnam(3), getpwuid(3) and similar calls, which may query a server.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDatabase;

impl Database for SystemDatabase {
    fn user(&self, name: &str) -> Option<UserEntry> {
        match name.parse() {
            Ok(uid) => self.user_of(uid),
            Err(_) => User::from_name(name).ok().flatten().map(entry),
        }
    }

    fn user_of(&self, uid: u32) -> Option<UserEntry> {
        User::from_uid(Uid::from_raw(uid)).ok().flatten().map(entry)
    }

    fn group(&self, name: &str) -> Option<u32> {
        if let Ok(gid) = name.parse() {
            return self.has_group(gid).then_some(gid);
        }
        let group = Group::from_name(name).ok().flatten()?;
        Some(group.gid.as_raw())
    }

    fn has_group(&self, gid: u32) -> bool {
        matches!(Group::from_gid(Gid::from_raw(gid)), Ok(Some(_)))
    }
}

fn entry(user: User) -> UserEntry {
    UserEntry {
        name: user.name,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
    }
}
