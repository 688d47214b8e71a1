//! Rules of user switching: the user of an application without a setting.

/// An entry of the user database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserEntry {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// The user and group database.
pub trait Database {
    /// Returns the user with this name or decimal number.
    fn user(&self, name: &str) -> Option<UserEntry>;
    /// Returns the user with this number.
    fn user_of(&self, uid: u32) -> Option<UserEntry>;
    /// Returns the group with this name or decimal number.
    fn group(&self, name: &str) -> Option<u32>;
    /// Whether a group with this number exists.
    fn has_group(&self, gid: u32) -> bool;
}

#[derive(Debug, Clone, Copy)]
pub struct Wishes<'a> {
    /// The user, if set.
    pub user: Option<&'a str>,
    /// The group, if set; [`OF_STARTUP_FILE`] stands for the reference file's.
    pub group: Option<&'a str>,
    /// Whether applications run as separate users.
    pub switching: bool,
    pub default_user: &'a str,
    /// The fallback group; otherwise the default user's primary group.
    pub default_group: Option<&'a str>,
    /// The owner of the start-up file or directory; of a symbolic link itself.
    pub file_owner: (u32, u32),
}

/// Stands for the reference file's group.
pub const OF_STARTUP_FILE: &str = "!STARTUP_FILE!";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    pub user: UserEntry,
    pub gid: u32,
}

/// A required default is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The user does not exist.
    #[error("the default user {0} does not exist")]
    DefaultUser(String),
    /// The group does not exist.
    #[error("the default group {0} does not exist")]
    DefaultGroup(String),
}

/// Chooses an application's account, for a kit that runs as root.
///
/// # Errors
/// A required default does not exist.
pub fn decide(wishes: &Wishes<'_>, database: &dyn Database) -> Result<Decision, Unresolved> {
    let default_user = || {
        let found = database.user(wishes.default_user);
        found.ok_or_else(|| Unresolved::DefaultUser(wishes.default_user.to_owned()))
    };
    let default_group = || match wishes.default_group {
        Some(name) => {
            let found = database.group(name);
            found.ok_or_else(|| Unresolved::DefaultGroup(name.to_owned()))
        }
        None => default_user().map(|entry| entry.gid),
    };
    if !wishes.switching {
        return Ok(Decision {
            user: default_user()?,
            gid: default_group()?,
        });
    }
    let (owner, owner_group) = wishes.file_owner;
    let wanted = match wishes.user {
        Some(name) => database.user(name),
        None => database.user_of(owner),
    };
    // A stray file or a typing error must not make an application run as root.
    let user = match wanted.filter(|entry| entry.uid != 0) {
        Some(entry) => entry,
        None => default_user()?,
    };
    let gid = match wishes.group {
        Some(OF_STARTUP_FILE) if database.has_group(owner_group) => owner_group,
        Some(OF_STARTUP_FILE) => default_group()?,
        Some(name) => match database.group(name).filter(|gid| *gid != 0) {
            Some(gid) => gid,
            None => default_group()?,
        },
        None => user.gid,
    };
    Ok(Decision { user, gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Small;

    fn entry(name: &str, uid: u32) -> UserEntry {
        UserEntry {
            name: name.to_owned(),
            uid,
            gid: uid,
        }
    }

    impl Database for Small {
        fn user(&self, name: &str) -> Option<UserEntry> {
            let known = [("root", 0), ("alice", 1001), ("owner", 1002), ("nobody", 65534)];
            let found = known.into_iter().find(|(known, _)| *known == name);
            found.map(|(name, uid)| entry(name, uid))
        }
        fn user_of(&self, uid: u32) -> Option<UserEntry> {
            match uid {
                0 => self.user("root"),
                1002 => self.user("owner"),
                _ => None,
            }
        }
        fn group(&self, name: &str) -> Option<u32> {
            let known = [("root", 0), ("staff", 50), ("nogroup", 65533)];
            known
                .into_iter()
                .find(|(known, _)| *known == name)
                .map(|(_, gid)| gid)
        }
        fn has_group(&self, gid: u32) -> bool {
            [0, 50, 777, 65533].contains(&gid)
        }
    }

    const WISHES: Wishes<'static> = Wishes {
        user: None,
        group: None,
        switching: true,
        default_user: "nobody",
        default_group: Some("nogroup"),
        file_owner: (1002, 777),
    };

    #[test]
    fn the_matrix() {
        // Requested user, file's owner → user.
        let users = [
            (Some("root"), 1002, "nobody"),
            (Some("alice"), 1002, "alice"),
            (Some("missing"), 1002, "nobody"),
            (None, 1002, "owner"),
            (None, 4711, "nobody"),
            (None, 0, "nobody"),
        ];
        // Requested group, file's group → group; `None`: the primary group.
        let groups = [
            (Some("staff"), 777, Some(50)),
            (Some("root"), 777, Some(65533)),
            (Some("missing"), 777, Some(65533)),
            (Some(OF_STARTUP_FILE), 777, Some(777)),
            (Some(OF_STARTUP_FILE), 4711, Some(65533)),
            (None, 777, None),
        ];
        for (user, owner, right) in users {
            for (group, owner_group, gid) in groups {
                let wishes = Wishes {
                    user,
                    group,
                    file_owner: (owner, owner_group),
                    ..WISHES
                };
                let decision = decide(&wishes, &Small).expect("the defaults are there");
                assert_eq!(decision.user.name, right, "{user:?} {owner}");
                assert_eq!(
                    decision.gid,
                    gid.unwrap_or(decision.user.gid),
                    "{user:?} {group:?}"
                );
            }
        }
    }

    #[test]
    fn without_switching_it_is_the_default() {
        let wishes = Wishes {
            user: Some("alice"),
            switching: false,
            ..WISHES
        };
        let decision = decide(&wishes, &Small).expect("the defaults are there");
        assert_eq!((decision.user.name.as_str(), decision.gid), ("nobody", 65533));
        let own_group = Wishes {
            default_group: None,
            ..wishes
        };
        assert_eq!(decide(&own_group, &Small).map(|d| d.gid), Ok(65534));
    }

    #[test]
    fn a_default_that_is_missing_matters_only_if_it_is_needed() {
        let wishes = Wishes {
            default_user: "ghost",
            default_group: Some("ghosts"),
            ..WISHES
        };
        assert!(decide(&wishes, &Small).is_ok());
        let root = Wishes {
            user: Some("root"),
            ..wishes
        };
        assert_eq!(
            decide(&root, &Small),
            Err(Unresolved::DefaultUser("ghost".to_owned()))
        );
        let group = Wishes {
            group: Some("missing"),
            ..wishes
        };
        assert_eq!(
            decide(&group, &Small),
            Err(Unresolved::DefaultGroup("ghosts".to_owned()))
        );
    }
}
