//! Resolves listening addresses.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use super::global::new_file;
use super::pool::{group_id, known_id};
use crate::World;
use crate::draft::{PoolDraft, PoolText};
use crate::flat_keys::{Field, Written};
use crate::model::{Address, Listen, LogLevel, NOT_ONE_CLIENT};
use crate::report::{Report, WorldReport};
use crate::units::{Text, Texts};
use crate::value::quoted;

const DEFAULT_BACKLOG: i32 = -1;
const DEFAULT_MODE: u32 = 0o660;
const SOCKET_PATH_ROOM: usize = 108;
/// unix(7): `sun_path` without NUL.
pub(super) const MAX_SOCKET_PATH: usize = SOCKET_PATH_ROOM - 1;
const FORMS: &str = "write an absolute path, \"ADDRESS:PORT\", \"[IPV6]:PORT\" or a port";

pub(super) fn written(draft: &PoolDraft) -> Option<&Written<Text>> {
    draft.listen.written().or(draft.listen_address.written())
}

pub(super) fn resolve(text: &PoolText, report: &mut WorldReport<'_>) -> Option<Listen> {
    let draft = &text.draft;
    if draft.listen.is_absent() && draft.listen_address.is_absent() {
        report.missing(
            &text.location,
            "listen",
            format!(
                "listen = \"/run/forkyard-{}.sock\" or listen = \"127.0.0.1:9000\"",
                text.name
            ),
        );
    }
    let address = written(draft).and_then(|written| pool_address(written, &text.name, report));
    let backlog = report.range(&draft.listen_backlog, -1, i64::from(i32::MAX));
    if let Some(written) = draft.listen_owner.written() {
        let name = &written.value.0;
        known_id(written, "user", name, report.world.uid(name), report);
    }
    if let Some(written) = draft.listen_group.written() {
        group_id(written, report);
    }
    let (allowed_clients, wrong_clients) = allowed_clients(draft, report);
    // A key without effect on this socket may affect the status or HTTP socket.
    let others = [&draft.status_listen, &draft.http_listen];
    let mut others = others.into_iter().filter_map(Field::text);
    let is_other_unix = others.clone().any(|address| address.starts_with('/'));
    let is_other_tcp = others.any(|address| !address.starts_with('/'));
    let acl_users = names(
        &draft.listen_acl_users,
        "user",
        |name| report.world.uid(name),
        report,
    );
    let acl_groups = names(
        &draft.listen_acl_groups,
        "group",
        |name| report.world.gid(name),
        report,
    );
    let has_list = !acl_users.is_empty() || !acl_groups.is_empty();
    if let (Some(Address::Unix(_)), true) = (&address, has_list) {
        for field in [&draft.listen_owner, &draft.listen_group] {
            if let Some(Written { value, key, .. }) = field.written() {
                let (pool, value) = (&text.name, &value.0);
                let text = format!("[pool {pool}] ACL set, {key} = '{value}' is ignored");
                report.say(LogLevel::Warning, text);
            }
        }
    }
    match &address {
        Some(Address::Unix(_)) if is_other_tcp => {}
        Some(Address::Tcp(_) | Address::TcpAny(_)) if is_other_unix => {}
        Some(Address::Unix(_)) => {
            let problem = "it has no effect on a unix socket";
            report.useless(
                &draft.listen_allowed_clients,
                problem,
                "use owner, group and mode",
            );
            if has_list {
                let problem = "it has no effect on a socket with acl_users or acl_groups";
                let remedy = "a list of users or groups takes the place of owner and group";
                report.useless(&draft.listen_owner, problem, remedy);
                report.useless(&draft.listen_group, problem, remedy);
            }
        }
        Some(Address::Tcp(_) | Address::TcpAny(_)) => {
            let (problem, remedy) = ("it has no effect on a TCP socket", "use allowed_clients");
            report.useless(&draft.listen_owner, problem, remedy);
            report.useless(&draft.listen_group, problem, remedy);
            report.useless(&draft.listen_mode, problem, remedy);
            report.useless(&draft.listen_acl_users, problem, remedy);
            report.useless(&draft.listen_acl_groups, problem, remedy);
        }
        None => {}
    }
    let listen = Listen {
        address: address?,
        backlog: backlog.unwrap_or(DEFAULT_BACKLOG),
        owner: draft.listen_owner.get(),
        group: draft.listen_group.get(),
        mode: draft.listen_mode.or(DEFAULT_MODE),
        allowed_clients,
        wrong_clients,
        acl_users,
        acl_groups,
    };
    // php-fpm's workers report this on standard error. If that isn't captured, log it here.
    if !matches!(listen.address, Address::Unix(_)) && !draft.catch_workers_output.or(false) {
        for complaint in listen.client_complaints() {
            report.say(LogLevel::Error, format!("[pool {}] {complaint}", text.name));
        }
    }
    Some(listen)
}

pub(super) fn status(text: &PoolText, pool: &Listen, report: &mut WorldReport<'_>) -> Option<Listen> {
    let written = text.draft.status_listen.written()?;
    // php-fpm treats it as a pool of this name.
    let name = format!("{}_status", text.name);
    let address = pool_address(written, &name, report)?;
    Some(Listen {
        address,
        backlog: DEFAULT_BACKLOG,
        ..pool.clone()
    })
}

pub(super) fn http(text: &PoolText, pool: &Listen, report: &mut WorldReport<'_>) -> Option<Listen> {
    let written = text.draft.http_listen.written()?;
    if text.is_routed() {
        return None;
    }
    if !text
        .runtime()
        .is_some_and(|runtime| runtime.traits().serves_http())
    {
        let problem = "only workers of ASGI applications, of Node.js and of other programs that speak HTTP can serve HTTP";
        report.rule(
            written,
            problem,
            "leave it out, and use listen with the web server's FastCGI",
        );
        return None;
    }
    let address = pool_address(written, &text.name, report)?;
    Some(Listen {
        address,
        ..pool.clone()
    })
}

fn names(
    field: &Field<Texts>,
    kind: &str,
    id: impl Fn(&str) -> Option<u32>,
    report: &mut Report<'_>,
) -> Vec<String> {
    let Some(written) = field.written() else {
        return Vec::new();
    };
    for name in &written.value.0 {
        known_id(written, kind, name, id(name), report);
    }
    written.value.0.clone()
}

pub(super) fn is_short_enough(path: &str) -> bool {
    path.len() <= MAX_SOCKET_PATH
}

/// php-fpm's message if a socket's path is too long.
pub fn too_long(path: &str, pool: &str) -> Option<String> {
    (!is_short_enough(path)).then(|| {
        format!(
            "[pool {pool}] cannot bind to UNIX socket '{path}' as path is too long (found length: {}, maximal \
             length: {SOCKET_PATH_ROOM})",
            path.len()
        )
    })
}

/// Whether php-fpm treats an address as TCP.
pub fn is_tcp(address: &str) -> bool {
    address.contains(':') || address.bytes().all(|byte| byte.is_ascii_digit())
}

/// As in php-fpm: a colon means TCP, digits a port, and anything else a unix socket.
pub(super) fn address(written: &Written<Text>, report: &mut WorldReport<'_>) -> Option<Address> {
    let text = written.value.0.as_str();
    if text.starts_with('/') {
        return unix(written, report);
    }
    let parsed = match text.rsplit_once(':') {
        Some((host, digits)) => tcp(host, digits, report.world),
        None if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
            port(text).map(Address::TcpAny)
        }
        None => Err((format!("{} is not an address", quoted(text)), FORMS)),
    };
    parsed
        .map_err(|(problem, remedy)| report.rule(written, problem, remedy))
        .ok()
}

fn pool_address(written: &Written<Text>, pool: &str, report: &mut WorldReport<'_>) -> Option<Address> {
    if report.is_php_fpm() {
        php_fpm(written.value.0.as_str(), pool, report)
    } else {
        address(written, report)
    }
}

/// Parses an address as php-fpm does: the host may be empty.
fn php_fpm(text: &str, pool: &str, report: &mut WorldReport<'_>) -> Option<Address> {
    if !is_tcp(text) {
        return Some(Address::Unix(socket_path(text, pool, report)));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let Some(port) = port.parse::<u16>().ok().filter(|port| *port > 0) else {
        report.fail(format!("invalid port value '{port}'"));
        return None;
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = inner.unwrap_or(host);
    if host.is_empty() {
        return Some(Address::TcpAny(port));
    }
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(Address::Tcp((address, port).into()));
    }
    match report.world.resolve(host, port).as_deref() {
        Err(reason) => {
            let end = report.line_end();
            report.fail(format!("getaddrinfo: {reason}{end}"));
        }
        Ok([]) => report.fail(format!("cannot resolve hostname '{host}'")),
        Ok([first, others @ ..]) => {
            for other in others.iter().filter(|other| *other != first) {
                let text = format!("Found multiple addresses for {host}, {} ignored", other.ip());
                report.say(LogLevel::Warning, text);
            }
            return Some(Address::Tcp(*first));
        }
    }
    None
}

/// A socket path, truncated to the kernel's limit as in php-fpm.
fn socket_path(text: &str, pool: &str, report: &mut Report<'_>) -> PathBuf {
    let Some(problem) = too_long(text, pool) else {
        return PathBuf::from(text);
    };
    let mut ends = (0..SOCKET_PATH_ROOM).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    let cut = &text[..end.unwrap_or(0)];
    report.say(
        LogLevel::Warning,
        format!("{problem}, trying cut socket path instead '{cut}'"),
    );
    PathBuf::from(cut)
}

fn unix(written: &Written<Text>, report: &mut WorldReport<'_>) -> Option<Address> {
    let text = written.value.0.as_str();
    let path = Path::new(text);
    if !is_short_enough(text) {
        let problem = format!("the path has {} bytes", text.len());
        report.rule(
            written,
            problem,
            format!("a unix socket's path may have {MAX_SOCKET_PATH}"),
        );
        return None;
    }
    if path.file_name().is_none() || text.ends_with('/') || report.world.is_dir(path) {
        report.rule(
            written,
            format!("{} is a directory", quoted(text)),
            "give the path of the socket itself",
        );
        return None;
    }
    new_file(written, path, report);
    Some(Address::Unix(PathBuf::from(text)))
}

type Wrong = (String, &'static str);

fn tcp(host: &str, digits: &str, world: &dyn World) -> Result<Address, Wrong> {
    let port = port(digits)?;
    if let Some(inner) = host.strip_prefix('[') {
        let ip = inner.strip_suffix(']').and_then(|inner| inner.parse().ok());
        let ip = ip.ok_or_else(|| {
            (
                format!("{} is not an IPv6 address in brackets", quoted(host)),
                FORMS,
            )
        })?;
        return Ok(Address::Tcp(SocketAddr::new(IpAddr::V6(ip), port)));
    }
    if host.contains(':') {
        let problem = format!("the IPv6 address {} is not in brackets", quoted(host));
        return Err((problem, "write \"[IPV6]:PORT\""));
    }
    if let Ok(ip) = host.parse() {
        return Ok(Address::Tcp(SocketAddr::new(IpAddr::V4(ip), port)));
    }
    let addresses = if host.is_empty() {
        Vec::new()
    } else {
        world.resolve(host, port).unwrap_or_default()
    };
    let first = addresses.first().ok_or_else(|| {
        let problem = format!("the host {} is not known", quoted(host));
        (
            problem,
            "give a name that this machine can resolve, or an address",
        )
    })?;
    Ok(Address::Tcp(*first))
}

fn port(digits: &str) -> Result<u16, Wrong> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match digits.parse() {
        Ok(port) if plain && port != 0 => Ok(port),
        _ => Err((
            format!("{} is not a port", quoted(digits)),
            "give a number from 1 to 65535",
        )),
    }
}

fn allowed_clients(draft: &PoolDraft, report: &mut Report<'_>) -> (Vec<IpAddr>, Vec<String>) {
    let Some(written) = draft.listen_allowed_clients.written() else {
        return (Vec::new(), Vec::new());
    };
    if written.value.0.is_empty() {
        report.rule(
            written,
            "no address is in the list",
            "name one, or leave the setting out to let every address connect",
        );
    }
    let (mut clients, mut wrong) = (Vec::new(), Vec::new());
    for text in &written.value.0 {
        match text.parse() {
            Ok(ip) => clients.push(ip),
            Err(_) => {
                wrong.push(text.clone());
                let problem = format!("{} is not an IP address", quoted(text));
                report.rule(
                    written,
                    problem,
                    "write single addresses, for example [\"127.0.0.1\", \"::1\"]",
                );
            }
        }
    }
    if clients.is_empty() {
        clients.push(NOT_ONE_CLIENT);
    }
    (clients, wrong)
}
