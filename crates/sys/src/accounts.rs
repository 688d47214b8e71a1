//! Users and groups. A C library lookup reads the account file up to its match (getpwnam(3)), too slow for ten thousand
//! pools. A [`hold`] reads /etc/passwd and /etc/group once, if nsswitch.conf(5) lists the files first, and caches the
//! library's answers.

use super::error::{Named, Result};
use nix::unistd::{Gid, Group, Uid, User};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const SWITCH: &str = "/etc/nsswitch.conf";
const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// The places that libnss_systemd reads. If they are missing, it knows only [`SYNTHESIZED`].
const USERDB: [&str; 7] = [
    "/etc/userdb",
    "/run/userdb",
    "/run/host/userdb",
    "/run/systemd/userdb",
    "/usr/local/lib/userdb",
    "/usr/lib/userdb",
    "/lib/userdb",
];
/// systemd knows `root` and `nobody` without any file.
const SYNTHESIZED: [u32; 2] = [0, 65534];

/// A line of passwd(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
    /// Login shell; may be empty.
    pub shell: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    First,
    Whole,
}

#[derive(Debug, Default)]
struct Known {
    passwd: Option<(Trust, Users)>,
    group: Option<(Trust, Groups)>,
    named: HashMap<String, Option<Rc<Account>>>,
    numbered: HashMap<u32, Option<Rc<Account>>>,
    groups: HashMap<String, Option<u32>>,
}

#[derive(Debug, Default)]
struct Users {
    by_name: HashMap<String, Rc<Account>>,
    by_id: HashMap<u32, Rc<Account>>,
}

#[derive(Debug, Default)]
struct Groups {
    by_name: HashMap<String, u32>,
    of_user: HashMap<String, Vec<u32>>,
}

thread_local! {
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// Caches accounts on this thread until dropped.
#[derive(Debug)]
pub struct Hold {
    is_outer: bool,
}

/// Starts caching on this thread.
pub fn hold() -> Hold {
    KNOWN.with_borrow_mut(|known| {
        let is_outer = known.is_none();
        known.get_or_insert_with(Known::read);
        Hold { is_outer }
    })
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_outer {
            KNOWN.set(None);
        }
    }
}

/// Returns a user by name, `None` if there is none.
///
/// # Errors
/// getpwnam(3).
pub fn named(name: &str) -> Result<Option<Account>> {
    let known = KNOWN.with_borrow(|known| known.as_ref()?.named(name));
    if let Some(known) = known {
        return Ok(known.as_deref().cloned());
    }
    let found = User::from_name(name).named("getpwnam", name)?.map(Account::from);
    remember(|known| {
        known.named.insert(name.to_owned(), found.clone().map(Rc::new));
    });
    Ok(found)
}

/// Returns a user by id, `None` if there is none.
///
/// # Errors
/// getpwuid(3).
pub fn numbered(uid: u32) -> Result<Option<Account>> {
    let known = KNOWN.with_borrow(|known| known.as_ref()?.numbered(uid));
    if let Some(known) = known {
        return Ok(known.as_deref().cloned());
    }
    let found = User::from_uid(Uid::from_raw(uid)).named("getpwuid", &uid.to_string())?;
    let found = found.map(Account::from);
    remember(|known| {
        known.numbered.insert(uid, found.clone().map(Rc::new));
    });
    Ok(found)
}

/// Returns a group's id, `None` if there is none.
///
/// # Errors
/// getgrnam(3).
pub fn group(name: &str) -> Result<Option<u32>> {
    let known = KNOWN.with_borrow(|known| known.as_ref()?.group(name));
    if let Some(known) = known {
        return Ok(known);
    }
    let found = Group::from_name(name).named("getgrnam", name)?;
    let found = found.map(|group| group.gid.as_raw());
    remember(|known| {
        known.groups.insert(name.to_owned(), found);
    });
    Ok(found)
}

/// Returns the groups of a user, including `gid`.
///
/// # Errors
/// getgrouplist(3).
pub fn groups_of(user: &str, gid: u32) -> Result<Vec<u32>> {
    let known = KNOWN.with_borrow(|known| match &known.as_ref()?.group {
        Some((Trust::Whole, groups)) => Some(groups.of(user, gid)),
        Some((Trust::First, _)) | None => None,
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let name = CString::new(user).unwrap_or_default();
    let list = nix::unistd::getgrouplist(&name, Gid::from_raw(gid)).named("getgrouplist", user)?;
    Ok(list.into_iter().map(Gid::as_raw).collect())
}

fn remember(note: impl FnOnce(&mut Known)) {
    KNOWN.with_borrow_mut(|known| known.as_mut().map(note));
}

impl From<User> for Account {
    fn from(user: User) -> Account {
        Account {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            home: user.dir,
            shell: user.shell,
        }
    }
}

impl Known {
    fn read() -> Known {
        // The C library's default is the files.
        let switch = match std::fs::read_to_string(SWITCH) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(_) => return Known::default(),
        };
        let is_silent = USERDB.iter().all(|place| is_empty(Path::new(place)));
        let file = |database, path| {
            let trust = trust(&switch, database, is_silent)?;
            Some((trust, std::fs::read_to_string(path).ok()?))
        };
        Known {
            passwd: file("passwd", PASSWD).and_then(|(trust, text)| Some((trust, users(&text)?))),
            group: file("group", GROUP).and_then(|(trust, text)| Some((trust, groups(&text)?))),
            ..Known::default()
        }
    }

    fn named(&self, name: &str) -> Option<Option<Rc<Account>>> {
        let is_synthesized = ["root", "nobody"].contains(&name);
        self.in_file(|users| users.by_name.get(name), is_synthesized)
            .or_else(|| self.named.get(name).cloned())
    }

    fn numbered(&self, uid: u32) -> Option<Option<Rc<Account>>> {
        let is_synthesized = SYNTHESIZED.contains(&uid);
        self.in_file(|users| users.by_id.get(&uid), is_synthesized)
            .or_else(|| self.numbered.get(&uid).cloned())
    }

    /// Looks into /etc/passwd; `None`: another source may know the user.
    fn in_file(
        &self,
        find: impl FnOnce(&Users) -> Option<&Rc<Account>>,
        is_synthesized: bool,
    ) -> Option<Option<Rc<Account>>> {
        let (trust, users) = self.passwd.as_ref()?;
        let found = find(users).cloned();
        let is_answer = found.is_some() || *trust == Trust::Whole && !is_synthesized;
        is_answer.then_some(found)
    }

    fn group(&self, name: &str) -> Option<Option<u32>> {
        let found = self
            .group
            .as_ref()
            .and_then(|(_, groups)| groups.by_name.get(name));
        found
            .map(|gid| Some(*gid))
            .or_else(|| self.groups.get(name).copied())
    }
}

fn is_empty(directory: &Path) -> bool {
    match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// How far nsswitch.conf(5) lets us trust the file, `None` if not at all. `is_silent`: libnss_systemd knows no account.
fn trust(switch: &str, database: &str, is_silent: bool) -> Option<Trust> {
    let line = |name: &str| {
        let mut lines = switch
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default());
        let rest = lines.find_map(|line| line.trim().strip_prefix(name)?.trim_start().strip_prefix(':'))?;
        Some(rest.to_owned())
    };
    // The `initgroups` database overrides the members in /etc/group.
    if database == "group" && line("initgroups").is_some() {
        return None;
    }
    let sources = line(database).unwrap_or_else(|| "files".to_owned());
    let mut sources = sources.split_whitespace();
    if sources.next() != Some("files") {
        return None;
    }
    let mut rest = sources.peekable();
    if rest.peek().is_some_and(|next| next.starts_with('[')) {
        return None;
    }
    let is_whole = rest.all(|source| source == "systemd" && is_silent);
    Some(if is_whole { Trust::Whole } else { Trust::First })
}

/// `None` if only the C library understands a line.
fn users(text: &str) -> Option<Users> {
    let mut users = Users::default();
    for line in entries(text)? {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, shell] = fields[..] else {
            return None;
        };
        let account = Rc::new(Account {
            name: name.to_owned(),
            uid: uid.parse().ok()?,
            gid: gid.parse().ok()?,
            home: home.into(),
            shell: shell.into(),
        });
        users.by_id.entry(account.uid).or_insert_with(|| account.clone());
        users.by_name.entry(account.name.clone()).or_insert(account);
    }
    Some(users)
}

fn groups(text: &str) -> Option<Groups> {
    let mut groups = Groups::default();
    for line in entries(text)? {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, gid, members] = fields[..] else {
            return None;
        };
        let gid = gid.parse().ok()?;
        groups.by_name.entry(name.to_owned()).or_insert(gid);
        for member in members.split(',').filter(|member| !member.is_empty()) {
            groups.of_user.entry(member.to_owned()).or_default().push(gid);
        }
    }
    Some(groups)
}

/// A line that starts with `+` or `-` refers to another source.
fn entries(text: &str) -> Option<impl Iterator<Item = &str>> {
    let lines = || {
        text.lines()
            .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
    };
    let is_plain = lines().all(|line| !line.starts_with(['+', '-', ' ', '\t']));
    is_plain.then(lines)
}

impl Groups {
    fn of(&self, user: &str, gid: u32) -> Vec<u32> {
        let mut all = vec![gid];
        for other in self.of_user.get(user).into_iter().flatten() {
            if !all.contains(other) {
                all.push(*other);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_trusted_as_far_as_the_system_asks_it_first() {
        let of = |line: &str, is_silent| trust(&format!("# x\n{line}\n"), "passwd", is_silent);
        assert_eq!(of("passwd: files", false), Some(Trust::Whole));
        assert_eq!(of("", false), Some(Trust::Whole));
        assert_eq!(of("passwd:\tfiles systemd", true), Some(Trust::Whole));
        assert_eq!(of("passwd:\tfiles systemd", false), Some(Trust::First));
        assert_eq!(of("passwd: files sss # more", true), Some(Trust::First));
        assert_eq!(of("passwd: files [NOTFOUND=return] sss", true), None);
        assert_eq!(of("passwd: sss files", true), None);
        assert_eq!(of("passwd: compat", true), None);
        assert_eq!(trust("group: files\ninitgroups: sss\n", "group", true), None);
    }

    #[test]
    fn lines_are_read_as_the_c_library_reads_them() {
        let users =
            users("root:x:0:0:root:/root:/bin/sh\n# c\n\na:x:5:6::/home/a:\nb:x:5:7::/b:\na:x:9:9::/:\n")
                .unwrap();
        assert_eq!(users.by_name["a"].uid, 5);
        assert_eq!((users.by_id[&5].name.as_str(), users.by_id[&5].gid), ("a", 6));
        assert_eq!(users.by_id[&9].name, "a");
        assert!(super::users("a:x:5:6::/home/a:/bin/sh\n+::::::\n").is_none());
        assert!(super::users("a:x:five:6::/home/a:/bin/sh\n").is_none());
        let groups = groups("g:x:7:a,b\nh:x:8:a\ni:x:6:a\n").unwrap();
        assert_eq!(groups.by_name["h"], 8);
        assert_eq!(groups.of("a", 6), [6, 7, 8]);
        assert_eq!(groups.of("c", 1), [1]);
    }

    #[test]
    fn what_is_held_is_what_the_system_says() {
        let text = std::fs::read_to_string(PASSWD).unwrap();
        let names: Vec<&str> = text.lines().filter_map(|line| line.split(':').next()).collect();
        let ask = || -> Vec<_> {
            let all = names.iter().map(|name| {
                let account = named(name).unwrap().unwrap();
                let groups = groups_of(name, account.gid).unwrap();
                (
                    numbered(account.uid).unwrap(),
                    group(name).unwrap(),
                    groups,
                    account,
                )
            });
            all.collect()
        };
        let plain = ask();
        let nobody = (named("no such user").unwrap(), numbered(4_000_000).unwrap());
        let _hold = hold();
        assert_eq!(ask(), plain);
        assert_eq!(
            (named("no such user").unwrap(), numbered(4_000_000).unwrap()),
            nobody
        );
        drop(hold());
        assert!(KNOWN.with_borrow(Option::is_some), "the outer one holds on");
    }
}
