//! Limits the connections of application owners. Root has a separate socket and limit, so that owners can't block root.

use forkyard_base::tick::Tick;
use std::collections::HashMap;

/// The most connections of one owner.
const MOST_OF_ONE_USER: usize = 4;
/// The most connections of all owners.
pub const MOST_GUESTS: usize = 16;

/// The users of the owners' connections.
#[derive(Debug, Default)]
pub struct Guests {
    by_session: HashMap<u64, u32>,
}

impl Guests {
    /// Returns the user of a connection; `None` if it isn't an owner's.
    pub fn user(&self, session: u64) -> Option<u32> {
        self.by_session.get(&session).copied()
    }

    /// Adds a connection.
    pub fn add(&mut self, session: u64, uid: u32) {
        self.by_session.insert(session, uid);
    }

    /// Removes a connection.
    pub fn remove(&mut self, session: u64) {
        self.by_session.remove(&session);
    }

    /// Returns the connection to close so that `uid` can open another: the user's own longest idle connection, or,
    /// above the total limit, one of the user with the most connections. `quiet` returns whether a connection waits for
    /// an answer (such connections are closed last), and since when it is idle.
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
        // A connection that waits for an answer is closed last.
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
            // Users 1 to 12 have one connection each, user 20 has four.
            guests.add(session, if session < 12 { 1 + session as u32 } else { 20 });
        }
        assert_eq!(guests.to_end(99, quiet), Some(12));
    }
}
