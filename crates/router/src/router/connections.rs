//! Counts connections with requests by the application's user. Each holds a descriptor during its request.

use super::event_loop::Router;
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Connections {
    by_user: HashMap<u32, usize>,
}

impl Connections {
    fn add(&mut self, user: u32) {
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
    fn admits(&self, user: u32, all: usize, most: usize) -> bool {
        let own = self.by_user.get(&user).copied().unwrap_or(0);
        all < most - most / 4 || own < most.div_ceil(2)
    }
}

impl Router {
    pub(super) fn count_user(&mut self, id: u64, user: u32) -> bool {
        let all = self.clients.len();
        let is_several = self.settings.user_switching;
        self.uncount_user(id);
        if is_several && !self.connections.admits(user, all, self.most_clients) {
            return false;
        }
        if let Some(client) = self.clients.get(id) {
            client.user = Some(user);
            self.connections.add(user);
        }
        true
    }

    pub(super) fn uncount_user(&mut self, id: u64) {
        if let Some(user) = self.clients.get(id).and_then(|client| client.user.take()) {
            self.connections.remove(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_half_of_the_connections_once_they_are_short() {
        let mut connections = Connections::default();
        let mut all = 0;
        while connections.admits(1, all, 100) {
            connections.add(1);
            all += 1;
        }
        assert_eq!(all, 75, "alone");
        while connections.admits(2, all, 100) && all < 100 {
            connections.add(2);
            all += 1;
        }
        assert_eq!(all, 100);
        for _ in 0..25 {
            connections.remove(1);
        }
        assert!(!connections.admits(1, 75, 100) && connections.admits(1, 74, 100));
        assert!(connections.admits(2, 75, 100));
        assert!(connections.admits(1, 0, 1) && connections.admits(3, 99, 100));
    }
}
