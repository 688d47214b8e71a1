//! How many conversations users have that may ask for what is their own alone. Root's are not counted here: they have a
//! socket and room of their own, so that no user's number of connections makes root wait.

use crate::tick::Tick;
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Conversations of one user at a time.
const MOST_OF_ONE_USER: usize = 4;
/// Conversations of all such users at a time.
pub const MOST_GUESTS: usize = 16;

/// The socket for the owners of applications, beside the one for root and the daemon's own user.
pub fn owners_socket(control: &Path) -> PathBuf {
    let mut path = OsString::from(control);
    path.push(".owners");
    PathBuf::from(path)
}

/// The users behind conversations, and since when each has been silent.
#[derive(Debug, Default)]
pub struct Guests {
    by_session: HashMap<u64, u32>,
}

impl Guests {
    /// The user of the conversation; `None`: it is not such a user's.
    pub fn user(&self, session: u64) -> Option<u32> {
        self.by_session.get(&session).copied()
    }

    /// A conversation begins.
    pub fn add(&mut self, session: u64, uid: u32) {
        self.by_session.insert(session, uid);
    }

    /// It is over.
    pub fn remove(&mut self, session: u64) {
        self.by_session.remove(&session);
    }

    /// The conversation that ends so that this user can begin one: of the user's own that have been silent the longest, or,
    /// where there are too many in all, of the user that has the most. `quiet` says how long it has been silent, and
    /// whether it waits for its answer: such a one goes last.
    pub fn to_end(&self, uid: u32, quiet: impl Fn(u64) -> (bool, Tick)) -> Option<u64> {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for owner in self.by_session.values() {
            *counts.entry(*owner).or_default() += 1;
        }
        let loser = if counts.get(&uid).is_some_and(|count| *count >= MOST_OF_ONE_USER) {
            uid
        } else if self.by_session.len() >= MOST_GUESTS {
            counts
                .into_iter()
                .max_by_key(|(owner, count)| (*count, *owner))
                .map(|(owner, _)| owner)?
        } else {
            return None;
        };
        let own = self.by_session.iter().filter(|(_, owner)| **owner == loser);
        own.map(|(session, _)| *session)
            .min_by_key(|session| (quiet(*session), *session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet(session: u64) -> (bool, Tick) {
        (false, Tick::from_nanos(session))
    }

    #[test]
    fn a_user_with_too_many_ends_its_own() {
        let mut guests = Guests::default();
        guests.add(1, 1000);
        for session in 2..2 + MOST_OF_ONE_USER as u64 {
            assert_eq!(guests.to_end(1001, quiet), None);
            guests.add(session, 1001);
        }
        assert_eq!(guests.to_end(1001, quiet), Some(2));
        // One that waits for its answer is kept as long as others are there.
        assert_eq!(guests.to_end(1001, |it| (it == 2, Tick::from_nanos(it))), Some(3));
        assert_eq!(guests.to_end(1000, quiet), None);
        guests.remove(2);
        assert_eq!((guests.user(1), guests.user(2)), (Some(1000), None));
        assert_eq!(guests.to_end(1001, quiet), None);
    }

    #[test]
    fn when_there_are_too_many_the_user_with_the_most_loses_one() {
        let mut guests = Guests::default();
        for session in 0..MOST_GUESTS as u64 {
            // Users 1 to 12 have one each, user 20 has four.
            guests.add(session, if session < 12 { 1 + session as u32 } else { 20 });
        }
        assert_eq!(guests.to_end(99, quiet), Some(12));
    }

    #[test]
    fn the_owners_socket_lies_beside_the_other() {
        let path = owners_socket(Path::new("/run/forkyard.sock"));
        assert_eq!(path, Path::new("/run/forkyard.sock.owners"));
    }
}
