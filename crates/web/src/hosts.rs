//! The names that requests may address. Otherwise another site could lead its name to this machine (DNS rebinding), and
//! a visitor's browser would read the numbers for that site.

use std::net::IpAddr;

/// The names besides `localhost` and IP addresses, in lower case.
#[derive(Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(names: Vec<String>) -> Hosts {
        Hosts(names)
    }

    /// Whether a request may have this authority: a name or an address, with or without port.
    pub(crate) fn allows(&self, authority: &str) -> bool {
        let Some(host) = host(authority) else {
            return false;
        };
        if host.parse::<IpAddr>().is_ok() {
            return true;
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        host == "localhost" || self.0.contains(&host)
    }
}

fn host(authority: &str) -> Option<&str> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(inner) => inner.split_once(']')?,
        None => match authority.find(':') {
            Some(at) => authority.split_at(at),
            None => (authority, ""),
        },
    };
    let is_port = |text: &str| text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_right = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
    (is_right && !host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_named_hosts_are_allowed() {
        let hosts = Hosts::new(vec!["numbers.example.org".to_owned()]);
        let allowed = [
            "localhost",
            "LocalHost:9180",
            "localhost.",
            "127.0.0.1",
            "127.0.0.1:9180",
            "10.0.0.7:80",
            "[::1]",
            "[::1]:9180",
            "Numbers.example.org",
            "numbers.example.org.:9180",
        ];
        let refused = [
            "",
            ":9180",
            "evil.test",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "x.numbers.example.org",
            "localhost:9180:1",
            "localhost:port",
            "user@localhost",
            "[::1",
            "[::1]x",
            "[]",
            "::1",
        ];
        for name in allowed {
            assert!(hosts.allows(name), "{name}");
        }
        for name in refused {
            assert!(!hosts.allows(name), "{name}");
        }
    }
}
