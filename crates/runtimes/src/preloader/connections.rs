//! Finds connections that an application left open after loading: forked workers would share them.

use forkyard_sys::{fd, socket};
use std::collections::BTreeSet;
use std::os::fd::RawFd;

const MARK: &str = "socket:";
const SERVICES: [&str; 9] = [
    "/dev/log",
    "/run/systemd/",
    "/run/dbus/",
    "/var/run/dbus/",
    "/run/nscd/",
    "/var/run/nscd/",
    "/var/lib/sss/",
    "/tmp/dbus-",
    "@/tmp/dbus-",
];

/// The servers that this process is connected to.
pub fn left_open() -> BTreeSet<String> {
    let numbers: Vec<RawFd> = match fd::open_ones() {
        Ok(all) => all
            .into_iter()
            .filter(|(_, target)| target.starts_with(MARK))
            .map(|(number, _)| number)
            .collect(),
        Err(_) => fd::open_sockets().into_iter().map(|(number, _)| number).collect(),
    };
    let ports = || numbers.iter().filter_map(|number| socket::own_port(*number));
    let listens: BTreeSet<u16> = ports()
        .filter(|(_, listens)| *listens)
        .map(|(port, _)| port)
        .collect();
    let is_clients =
        |number: &RawFd| socket::own_port(*number).is_some_and(|(port, _)| listens.contains(&port));
    let names = numbers
        .iter()
        .filter(|number| !is_clients(number))
        .filter_map(|number| socket::server_name(*number));
    names.filter(|name| !is_of_system(name)).collect()
}

fn is_of_system(name: &str) -> bool {
    let is_of_session =
        name.starts_with("/run/user/") && (name.ends_with("/bus") || name.contains("/systemd/"));
    is_of_session || SERVICES.iter().any(|service| name.starts_with(service))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_the_system_are_none_of_the_applications() {
        for name in [
            "/dev/log",
            "/run/systemd/journal/stdout",
            "/run/dbus/system_bus_socket",
            "/run/user/1000/bus",
            "/run/user/1000/systemd/private",
            "/var/run/nscd/socket",
            "@/tmp/dbus-aB3",
        ] {
            assert!(is_of_system(name), "{name}");
        }
        for name in [
            "127.0.0.1:5432",
            "/run/postgresql/.s.PGSQL.5432",
            "/run/user/1000/gearman",
            "@cache",
            "/run/mysqld/mysqld.sock",
        ] {
            assert!(!is_of_system(name), "{name}");
        }
    }

    #[test]
    fn a_connection_to_a_server_is_found_and_a_pair_is_not() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(!left_open().contains(&address));
        let connection = std::net::TcpStream::connect(&address).unwrap();
        assert!(left_open().contains(&address));
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(
            left_open()
                .iter()
                .all(|name| !name.is_empty() && !name.contains("unbound"))
        );
        let (of_client, _) = listener.accept().unwrap();
        assert!(!left_open().contains(&of_client.peer_addr().unwrap().to_string()));
        drop((connection, one, other));
    }
}
