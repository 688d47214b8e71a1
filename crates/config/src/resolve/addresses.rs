//! Finds listening addresses that are given twice.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::listen;
use crate::World;
use crate::draft::PoolText;
use crate::flat_keys::Written;
use crate::model::{Address, Listen, Pool};
use crate::report::{Diagnostics, Report};
use crate::units::Text;
use crate::value::quoted;

/// Reports each address that an earlier pool has.
pub(super) fn check(pools: &[(&PoolText, Pool)], world: &dyn World, diagnostics: &mut Diagnostics) {
    let mut places = Places::of(world);
    // A map, because comparing all pairs of a thousand pools is slow.
    let mut sockets: HashMap<Place, (&Pool, &Path)> = HashMap::new();
    let mut ports: Vec<(&Address, &Pool)> = Vec::new();
    for (text, pool) in pools {
        let written = written(text).into_iter().zip(listening(pool));
        for (written, listen) in written.filter_map(|(written, listen)| written.zip(listen)) {
            let (earlier, other_path) = match &listen.address {
                Address::Unix(path) => match sockets.entry(places.place(path)) {
                    Entry::Occupied(known) => {
                        let (other, known) = *known.get();
                        (Some(other), Some(known).filter(|known| *known != path))
                    }
                    Entry::Vacant(vacant) => {
                        vacant.insert((pool, path));
                        (None, None)
                    }
                },
                address => {
                    let known = ports.iter().find(|(other, _)| overlap(other, address, world));
                    let known = known.map(|(_, other)| *other);
                    ports.push((address, pool));
                    (known, None)
                }
            };
            let Some(other) = earlier else {
                continue;
            };
            let (name, address) = (&other.name, quoted(&written.value.0));
            let problem = match other_path {
                Some(path) => format!(
                    "pool {name} already listens on {address}, with the path {}",
                    quoted(&path.to_string_lossy())
                ),
                None => format!("pool {name} already listens on {address}"),
            };
            let mut report = Report::pool(diagnostics, &pool.name);
            report.rule(written, problem, "give each pool its own address");
            diagnostics.concerns(name);
        }
    }
}

/// The pool that has an address of another part.
pub(super) fn user_of<'p>(
    pools: &'p [(&PoolText, Pool)],
    address: &Address,
    world: &dyn World,
) -> Option<&'p Pool> {
    let mut places = Places::of(world);
    let mut is_same = |listen: &Listen| match (address, &listen.address) {
        (Address::Unix(one), Address::Unix(other)) => places.place(one) == places.place(other),
        (one, other) => overlap(one, other, world),
    };
    let mut pools = pools.iter().map(|(_, pool)| pool);
    pools.find(|pool| listening(pool).into_iter().flatten().any(&mut is_same))
}

fn written(text: &PoolText) -> [Option<&Written<Text>>; 3] {
    let draft = &text.draft;
    [
        listen::written(draft),
        draft.status_listen.written(),
        draft.http_listen.written(),
    ]
}

fn listening(pool: &Pool) -> [Option<&Listen>; 3] {
    let status = pool.pages.status_listen.as_deref();
    [Some(&pool.listen), status, pool.http_listen.as_deref()]
}

/// A directory without links, and a name in it.
type Place = (PathBuf, OsString);

/// Looks each directory up once.
struct Places<'w> {
    world: &'w dyn World,
    directories: HashMap<PathBuf, PathBuf>,
}

impl<'w> Places<'w> {
    fn of(world: &'w dyn World) -> Places<'w> {
        Places {
            world,
            directories: HashMap::new(),
        }
    }

    fn place(&mut self, path: &Path) -> Place {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return (path.to_owned(), OsString::new());
        };
        if !self.directories.contains_key(parent) {
            let real = self.world.without_links(parent);
            self.directories.insert(parent.to_owned(), real);
        }
        (self.directories[parent].clone(), name.to_owned())
    }
}

/// Whether two TCP addresses conflict.
fn overlap(a: &Address, b: &Address, world: &dyn World) -> bool {
    // Whether `[::]` leaves out IPv4.
    let only_v6 = || {
        let text = world.read(Path::new("/proc/sys/net/ipv6/bindv6only"));
        text.is_ok_and(|text| text.starts_with(b"1"))
    };
    match (a, b) {
        (Address::TcpAny(a), Address::TcpAny(b)) => a == b,
        (Address::TcpAny(port), Address::Tcp(tcp)) | (Address::Tcp(tcp), Address::TcpAny(port)) => {
            *port == tcp.port()
        }
        (Address::Tcp(a), Address::Tcp(b)) => {
            let takes_all_of = |any: &SocketAddr, one: &SocketAddr| {
                let is_own_family = any.is_ipv4() == one.is_ipv4();
                any.ip().is_unspecified() && (is_own_family || (any.is_ipv6() && !only_v6()))
            };
            a.port() == b.port() && (a.ip() == b.ip() || takes_all_of(a, b) || takes_all_of(b, a))
        }
        (Address::Unix(_), _) | (_, Address::Unix(_)) => false,
    }
}
