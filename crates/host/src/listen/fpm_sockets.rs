//! Parses FPM_SOCKETS, in which php-fpm passes its listening sockets to its successor.

use forkyard_config::Address;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::PathBuf;

const MAX_VARIABLES: usize = 256;
const MAX_IN_VARIABLE: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// The part before `=`.
    pub(super) key: String,
    pub(super) address: Address,
    pub(super) fd: RawFd,
}

pub(super) fn variables(lookup: &dyn Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let name = |at: usize| match at {
        0 => "FPM_SOCKETS".to_owned(),
        at => format!("FPM_SOCKETS_{at}"),
    };
    (0..MAX_VARIABLES)
        .map(name)
        .map_while(|name| lookup(&name).map(|value| (name, value)))
        .collect()
}

pub(super) fn parse(value: &str) -> impl Iterator<Item = Named> + '_ {
    value.split(',').take(MAX_IN_VARIABLE).filter_map(|item| {
        let (key, fd) = item.rsplit_once('=')?;
        Some(Named {
            key: key.to_owned(),
            address: address(key)?,
            fd: fd.parse().ok()?,
        })
    })
}

/// An IPv6 address has no brackets.
fn address(key: &str) -> Option<Address> {
    if !key.contains(':') && !key.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Address::Unix(PathBuf::from(key)));
    }
    let (host, port) = key.rsplit_once(':')?;
    let host: IpAddr = host.trim_matches(['[', ']']).parse().ok()?;
    Some(Address::Tcp(SocketAddr::new(host, port.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_paths_or_addresses() {
        let found: Vec<Named> = parse("/run/a.sock=3,127.0.0.1:9000=4,::1:9001=5,:::9002=6").collect();
        let tcp = |text: &str| Address::Tcp(text.parse().unwrap());
        let addresses: Vec<&Address> = found.iter().map(|named| &named.address).collect();
        assert_eq!(
            addresses,
            [
                &Address::Unix("/run/a.sock".into()),
                &tcp("127.0.0.1:9000"),
                &tcp("[::1]:9001"),
                &tcp("[::]:9002"),
            ]
        );
        assert_eq!(
            found.iter().map(|named| named.fd).collect::<Vec<_>>(),
            [3, 4, 5, 6]
        );
        assert_eq!(found[2].key, "::1:9001");
    }

    #[test]
    fn nonsense_is_passed_over() {
        assert_eq!(parse("").count(), 0);
        assert_eq!(parse("/a,/b=x,9000=3,host:1=4,1.2.3.4:99999=5").count(), 0);
        let many = vec!["/a=3"; 1000].join(",");
        assert_eq!(parse(&many).count(), MAX_IN_VARIABLE);
    }

    #[test]
    fn variables_end_at_the_first_that_is_missing() {
        let lookup = |name: &str| match name {
            "FPM_SOCKETS" | "FPM_SOCKETS_1" | "FPM_SOCKETS_3" => Some("x".to_owned()),
            _ => None,
        };
        let names: Vec<String> = variables(&lookup).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["FPM_SOCKETS", "FPM_SOCKETS_1"]);
    }
}
