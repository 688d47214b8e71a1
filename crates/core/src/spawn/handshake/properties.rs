//! `response/properties.json`: the sockets of the new process.

use crate::spawn::plan::Plan;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The longest file in bytes.
pub const MOST_BYTES: usize = 32_768;
/// The most sockets that accept requests.
pub const MOST_ACCEPTING: usize = 3;
const MOST_SOCKETS: usize = 64;

/// The address of a socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "String")]
pub enum Address {
    /// An absolute unix socket path.
    Unix(PathBuf),
    /// Host and port.
    Tcp(String, u16),
}

impl Address {
    /// Parses `unix:/path` or `tcp://host:port`.
    pub fn parse(text: &str) -> Option<Address> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Some(Address::Unix(PathBuf::from(path)));
        }
        let (host, port) = text.strip_prefix("tcp://")?.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
        (!host.is_empty()).then(|| Address::Tcp(host.to_owned(), port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(host, port) if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "tcp://{host}:{port}"),
        }
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

/// A socket of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Socket {
    pub address: Address,
    /// `http`, `session`, `preloader`, or another.
    pub protocol: String,
    /// Concurrent requests; 0: any number, negative: unknown.
    pub concurrency: i64,
    /// Whether it accepts requests.
    pub accept_http_requests: bool,
    /// A description for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl Socket {
    /// Returns the port of an application that reports no sockets.
    pub fn generic(host: &str, port: u16) -> Socket {
        Socket::at(Address::Tcp(host.to_owned(), port))
    }

    /// Returns the address of an application that reports no sockets.
    pub fn at(address: Address) -> Socket {
        Socket {
            address,
            protocol: "http".to_owned(),
            concurrency: -1,
            accept_http_requests: true,
            description: None,
        }
    }
}

/// What exists at a unix socket's path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SocketOwner {
    Socket {
        uid: u32,
    },
    Other,
    /// Inaccessible, with the reason.
    Nothing(String),
}

/// Parses the file.
///
/// # Errors
/// All errors, as predicates.
pub fn parse(bytes: &[u8]) -> Result<Vec<Socket>, Vec<String>> {
    let document: Value =
        serde_json::from_slice(bytes).map_err(|error| vec![format!("is not valid JSON: {error}")])?;
    let Value::Object(document) = document else {
        return Err(vec!["is not a JSON object".to_owned()]);
    };
    let list = match document.get("sockets") {
        None => return Err(vec!["has no \"sockets\"".to_owned()]),
        Some(Value::Array(list)) if list.is_empty() => {
            return Err(vec!["has an empty array \"sockets\"".to_owned()]);
        }
        Some(Value::Array(list)) => list,
        Some(_) => return Err(vec!["has \"sockets\" that is not an array".to_owned()]),
    };
    if list.len() > MOST_SOCKETS {
        return Err(vec![format!("has more than {MOST_SOCKETS} sockets")]);
    }
    let mut faults = Vec::new();
    let mut sockets = Vec::new();
    for (index, value) in list.iter().enumerate() {
        match socket(value) {
            Ok(socket) => sockets.push(socket),
            Err(found) => {
                faults.extend(
                    found
                        .into_iter()
                        .map(|text| format!("has sockets[{index}] {text}")),
                );
            }
        }
    }
    if faults.is_empty() {
        Ok(sockets)
    } else {
        Err(faults)
    }
}

fn socket(value: &Value) -> Result<Socket, Vec<String>> {
    let Value::Object(fields) = value else {
        return Err(vec!["that is not an object".to_owned()]);
    };
    let mut faults = Vec::new();
    let mut text = |name: &str, required: bool| match fields.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
        Some(Value::String(_)) => {
            faults.push(format!("with an empty \"{name}\""));
            None
        }
        Some(Value::Null) | None if !required => None,
        None => {
            faults.push(format!("without \"{name}\""));
            None
        }
        Some(_) => {
            faults.push(format!("with \"{name}\" that is not a string"));
            None
        }
    };
    let address = text("address", true);
    let protocol = text("protocol", true);
    let description = text("description", false);
    let concurrency = match fields.get("concurrency").map(Value::as_i64) {
        Some(Some(number)) => Some(number),
        Some(None) => {
            faults.push("with \"concurrency\" that is not an integer".to_owned());
            None
        }
        None => {
            faults.push("without \"concurrency\"".to_owned());
            None
        }
    };
    let accepts = match fields.get("accept_http_requests") {
        None => Some(false),
        Some(Value::Bool(accepts)) => Some(*accepts),
        Some(_) => {
            faults.push("with \"accept_http_requests\" that is not a boolean".to_owned());
            None
        }
    };
    let parsed = address.as_deref().map(Address::parse);
    if parsed == Some(None) {
        faults.push("with an \"address\" that is neither unix:/PATH nor tcp://HOST:PORT".to_owned());
    }
    if let Some(Some(Address::Unix(path))) = &parsed {
        if path.as_os_str().is_empty() {
            faults.push("with an empty path in its \"address\"".to_owned());
        } else if !path.is_absolute() {
            faults.push(format!(
                "with a unix socket {} that has a relative path",
                path.display()
            ));
        }
    }
    if accepts == Some(true) && !matches!(protocol.as_deref(), None | Some("http" | "session")) {
        faults.push("that accepts requests but speaks neither \"http\" nor \"session\"".to_owned());
    }
    match (
        faults.is_empty(),
        parsed.flatten(),
        protocol,
        concurrency,
        accepts,
    ) {
        (true, Some(address), Some(protocol), Some(concurrency), Some(accept_http_requests)) => Ok(Socket {
            address,
            protocol,
            concurrency,
            accept_http_requests,
            description,
        }),
        _ => Err(faults),
    }
}

/// Returns the unix sockets to inspect before [`check`]: only paths that the plan allows.
pub fn to_look_at<'a>(sockets: &'a [Socket], plan: &'a Plan) -> impl Iterator<Item = &'a Path> {
    sockets.iter().filter_map(move |socket| match &socket.address {
        Address::Unix(path) if is_inside(path, plan) => Some(path.as_path()),
        _ => None,
    })
}

/// Checks that unix sockets are in their directory and the user's, and that one socket accepts requests.
///
/// # Errors
/// All errors.
pub fn check(
    sockets: &[Socket],
    found: &BTreeMap<PathBuf, SocketOwner>,
    plan: &Plan,
) -> Result<(), Vec<String>> {
    let mut faults = Vec::new();
    for socket in sockets {
        let Address::Unix(path) = &socket.address else {
            continue;
        };
        let name = path.display();
        if !is_inside(path, plan) {
            let directory = plan.socket_dir.as_deref().unwrap_or(Path::new("/")).display();
            faults.push(format!("has the unix socket {name}, which is not in {directory}"));
            continue;
        }
        match found.get(path) {
            Some(SocketOwner::Socket { uid }) if *uid == plan.account.uid => {}
            Some(SocketOwner::Socket { uid }) => faults.push(format!(
                "has the unix socket {name}, which belongs to user {uid} and not to {} ({})",
                plan.account.user, plan.account.uid
            )),
            Some(SocketOwner::Other) => {
                faults.push(format!("has the unix socket {name}, which is no socket"))
            }
            Some(SocketOwner::Nothing(why)) => {
                faults.push(format!("has the unix socket {name}, which is not there: {why}"));
            }
            None => faults.push(format!("has the unix socket {name}, which is not there")),
        }
    }
    let accepting = sockets.iter().filter(|socket| socket.accept_http_requests);
    match accepting.count() {
        0 => faults.push("has no socket with \"accept_http_requests\": true".to_owned()),
        count if count > MOST_ACCEPTING => faults.push(format!(
            "has {count} sockets that accept requests; {MOST_ACCEPTING} are the most"
        )),
        _ => {}
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn is_inside(path: &Path, plan: &Plan) -> bool {
    let named = path.file_name().is_some() && !path.to_string_lossy().contains('\0');
    let inside = plan
        .socket_dir
        .as_deref()
        .is_none_or(|directory| path.parent() == Some(directory));
    named && path.is_absolute() && inside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawn::plan::sample;

    const GOOD: &str = r#"{"sockets":[{"address":"unix:/run/a/s","protocol":"http","concurrency":1,
        "accept_http_requests":true}]}"#;

    fn judge(text: &str, found: SocketOwner, directory: Option<&str>) -> Result<(), Vec<String>> {
        let sockets = parse(text.as_bytes())?;
        let mut plan = sample();
        plan.socket_dir = directory.map(PathBuf::from);
        let found = BTreeMap::from([(PathBuf::from("/run/a/s"), found)]);
        check(&sockets, &found, &plan)
    }

    #[test]
    fn a_socket_must_be_the_users_and_in_its_place() {
        let own = SocketOwner::Socket { uid: 1000 };
        assert_eq!(judge(GOOD, own.clone(), None), Ok(()));
        assert_eq!(judge(GOOD, own.clone(), Some("/run/a")), Ok(()));
        let said = |found, directory| judge(GOOD, found, directory).unwrap_err().join("; ");
        assert!(said(own, Some("/run")).contains("which is not in /run"));
        assert!(
            said(SocketOwner::Socket { uid: 0 }, None).contains("belongs to user 0 and not to app (1000)")
        );
        assert!(said(SocketOwner::Other, None).contains("is no socket"));
        assert!(said(SocketOwner::Nothing("gone".to_owned()), None).contains("not there: gone"));
    }

    #[test]
    fn a_socket_has_to_accept_requests() {
        let silent = GOOD.replace("true", "false");
        let worker = judge(&silent, SocketOwner::Socket { uid: 1000 }, None).unwrap_err();
        assert_eq!(
            worker,
            ["has no socket with \"accept_http_requests\": true".to_owned()]
        );
    }

    #[test]
    fn everything_wrong_is_said_at_once() {
        for (text, said) in [
            ("", "is not valid JSON"),
            ("[]", "is not a JSON object"),
            ("{}", "has no \"sockets\""),
            (r#"{"sockets":3}"#, "not an array"),
            (r#"{"sockets":[]}"#, "an empty array"),
            (r#"{"sockets":[3]}"#, "sockets[0] that is not an object"),
        ] {
            assert!(parse(text.as_bytes()).unwrap_err()[0].contains(said), "{text}");
        }
        let text = r#"{"sockets":[{"address":3,"protocol":"","concurrency":1.5,"accept_http_requests":1},
            {"address":"unix:a","protocol":"x","concurrency":1,"accept_http_requests":true},
            {"address":"tcp://:1","protocol":"http","concurrency":1}]}"#;
        let faults = parse(text.as_bytes()).unwrap_err();
        assert_eq!(faults.len(), 7, "{faults:?}");
    }

    #[test]
    fn addresses() {
        let tcp = Address::parse("tcp://[::1]:80").expect("an address");
        assert_eq!(tcp, Address::Tcp("::1".to_owned(), 80));
        assert_eq!(tcp.to_string(), "tcp://[::1]:80");
        for wrong in [
            "",
            "/run/s",
            "tcp://a",
            "tcp://a:0",
            "tcp://a:99999",
            "http://a:1",
        ] {
            assert_eq!(Address::parse(wrong), None, "{wrong}");
        }
    }
}
