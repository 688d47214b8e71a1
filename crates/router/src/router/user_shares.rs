//! Counts connections with requests by the application's user. Each holds a descriptor during its request.

use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct UserShares {
    by_user: HashMap<u32, usize>,
}

impl UserShares {
    pub(super) fn add(&mut self, user: u32) {
        *self.by_user.entry(user).or_default() += 1;
    }

    pub(super) fn remove(&mut self, user: u32) {
        if let Some(count) = self.by_user.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.by_user.remove(&user);
            }
        }
    }

    /// Returns whether a user may have another connection. With less than a quarter free, a user may have at most half,
    /// so that others can still connect.
    pub(super) fn admits(&self, user: u32, all: usize, most: usize) -> bool {
        let own = self.by_user.get(&user).copied().unwrap_or(0);
        all < most - most / 4 || own < most.div_ceil(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_half_of_the_connections_once_they_are_short() {
        let mut users = UserShares::default();
        let mut all = 0;
        while users.admits(1, all, 100) {
            users.add(1);
            all += 1;
        }
        assert_eq!(all, 75, "alone");
        while users.admits(2, all, 100) && all < 100 {
            users.add(2);
            all += 1;
        }
        assert_eq!(all, 100);
        for _ in 0..25 {
            users.remove(1);
        }
        assert!(!users.admits(1, 75, 100) && users.admits(1, 74, 100));
        assert!(users.admits(2, 75, 100));
        assert!(users.admits(1, 0, 1) && users.admits(3, 99, 100));
    }
}
