//! How a PostgreSQL server is reached: a URL in libpq's words, of which the client library understands all but those about TLS.

use forkyard_base::percent::percent_decode;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a URL of a PostgreSQL server begins with.
pub(crate) const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

/// The parameters that are understood here.
const MODE: &str = "sslmode";
const ROOT: &str = "sslrootcert";
const CERTIFICATE: &str = "sslcert";
const KEY: &str = "sslkey";
/// One that the client library understands, and that not every mode goes with.
const NEGOTIATION: &str = "sslnegotiation";

const MODES: [(&str, SslMode); 6] = [
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

/// A database of a PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostgresqlServer {
    /// Its URL, without what is said of TLS.
    pub url: String,
    /// What is said of TLS.
    pub encryption: Encryption,
}

/// Whether a connection is encrypted, and who is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    /// Whether it is.
    pub mode: SslMode,
    /// Who signs the server's certificate. `None`: the certificate is not looked at.
    pub roots: Option<Roots>,
    /// How the client proves who it is.
    pub client: Option<ClientCertificate>,
}

/// libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SslMode {
    /// Never.
    Disable,
    /// Where the server wants no other connection.
    Allow,
    /// Where the server has TLS.
    Prefer,
    /// Always.
    Require,
    /// Always, with a server whose certificate an authority has signed.
    VerifyCa,
    /// Always, with a server whose certificate an authority has signed for its name.
    VerifyFull,
}

/// Who signs the server's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Roots {
    /// An authority that the system trusts.
    System,
    /// One of this file.
    File(PathBuf),
}

/// How the client proves who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    /// The file with its certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// The file with its key.
    pub key: PathBuf,
}

/// What is wrong with a URL, and what would be right. The URL itself, which may have a password, is not in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlMistake {
    /// What is wrong.
    pub problem: String,
    /// What to write.
    pub remedy: String,
}

fn mistake<T>(problem: impl Into<String>, remedy: impl Into<String>) -> Result<T, UrlMistake> {
    Err(UrlMistake {
        problem: problem.into(),
        remedy: remedy.into(),
    })
}

/// What a URL says of TLS. The last word counts, as with libpq.
#[derive(Default)]
struct TlsOptions {
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    negotiation: Option<String>,
}

impl PostgresqlServer {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// What it says of TLS can't be meant, or is not understood here.
    pub fn parse(url: &str) -> Result<PostgresqlServer, UrlMistake> {
        let (place, parameters) = split(url);
        let mut said = TlsOptions::default();
        let mut others = Vec::new();
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let name = decoded(name)?;
            match name.as_str() {
                MODE => said.mode = Some(decoded(value)?),
                ROOT => said.root = Some(decoded(value)?),
                CERTIFICATE => said.certificate = Some(decoded(value)?),
                KEY => said.key = Some(decoded(value)?),
                NEGOTIATION => {
                    said.negotiation = Some(decoded(value)?);
                    others.push(parameter);
                }
                _ if name.starts_with("ssl") || name == "requiressl" => {
                    let remedy = format!(
                        "leave it out; {MODE}, {ROOT}, {CERTIFICATE}, {KEY} and {NEGOTIATION} are understood"
                    );
                    return mistake(format!("{name} is not understood"), remedy);
                }
                _ => others.push(parameter),
            }
        }
        let rest = match others.as_slice() {
            [] => place.to_owned(),
            others => format!("{place}?{}", others.join("&")),
        };
        // The client library may see a parameter where a password ends that was not seen here.
        if [MODE, ROOT].iter().any(|name| rest.contains(&format!("{name}="))) {
            let remedy = "write / and ? of a password as %2F and %3F";
            return mistake(
                format!("it is not clear whether it says {MODE} or {ROOT}"),
                remedy,
            );
        }
        Ok(PostgresqlServer {
            url: rest,
            encryption: said.meant()?,
        })
    }
}

impl TlsOptions {
    fn meant(self) -> Result<Encryption, UrlMistake> {
        let root = self.root.filter(|root| !root.is_empty());
        let is_system = root.as_deref() == Some("system");
        let mode = match &self.mode {
            Some(mode) => known(mode)?,
            None if is_system => SslMode::VerifyFull,
            None => SslMode::Prefer,
        };
        if is_system && mode < SslMode::VerifyFull && mode != SslMode::Disable {
            let problem = format!(
                "{ROOT}=system trusts every server that has a certificate, and {MODE} does not look at its name"
            );
            return mistake(
                problem,
                format!("write {MODE}=verify-full, or name a file as {ROOT}"),
            );
        }
        if mode < SslMode::Require && self.negotiation.as_deref() == Some("direct") {
            let problem = format!("{NEGOTIATION}=direct leaves no choice, and {MODE} does");
            return mistake(problem, format!("write {MODE}=require or verify-full"));
        }
        let roots = match root {
            Some(_) if is_system => Some(Roots::System),
            Some(root) => Some(Roots::File(file(ROOT, root)?)),
            None => None,
        };
        if roots.is_none() && mode >= SslMode::VerifyCa {
            let problem = format!("{MODE} wants the server's certificate checked, and no authority is named");
            let remedy =
                format!("add {ROOT}= followed by the path of a file with its certificate, or by system");
            return mistake(problem, remedy);
        }
        let certificate = self.certificate.filter(|path| !path.is_empty());
        let client = match (certificate, self.key.filter(|path| !path.is_empty())) {
            (Some(certificate), Some(key)) => Some(ClientCertificate {
                certificate: file(CERTIFICATE, certificate)?,
                key: file(KEY, key)?,
            }),
            (None, None) => None,
            (Some(_), None) => return alone(CERTIFICATE, KEY),
            (None, Some(_)) => return alone(KEY, CERTIFICATE),
        };
        Ok(Encryption { mode, roots, client })
    }
}

fn known(mode: &str) -> Result<SslMode, UrlMistake> {
    let known = MODES.iter().find(|(name, _)| *name == mode);
    match known {
        Some((_, mode)) => Ok(*mode),
        None => {
            let names = MODES.map(|(name, _)| name).join(", ");
            mistake(
                format!("{MODE}={mode} is not known"),
                format!("write one of {names}"),
            )
        }
    }
}

fn file(name: &str, path: String) -> Result<PathBuf, UrlMistake> {
    if Path::new(&path).is_absolute() {
        Ok(path.into())
    } else {
        mistake(
            format!("{name}={path} is not an absolute path"),
            "start it with /",
        )
    }
}

fn alone(name: &str, other: &str) -> Result<Encryption, UrlMistake> {
    let remedy = format!("add {other}= followed by the path of a file");
    mistake(format!("{name} needs {other}"), remedy)
}

/// What comes before the parameters, and these. A password may have a question mark.
fn split(url: &str) -> (&str, &str) {
    let scheme = SCHEMES.iter().find(|scheme| url.starts_with(**scheme));
    let start = scheme.map_or(0, |scheme| scheme.len());
    let host = match url[start..].find(['@', '/']) {
        Some(end) if url[start + end..].starts_with('@') => start + end,
        _ => start,
    };
    match url[host..].find('?') {
        Some(end) => (&url[..host + end], &url[host + end + 1..]),
        None => (url, ""),
    }
}

/// Text in which bytes are written as `%2F`.
fn decoded(text: &str) -> Result<String, UrlMistake> {
    match String::from_utf8(percent_decode(text.as_bytes()).into_owned()) {
        Ok(decoded) if !decoded.contains('\0') => Ok(decoded),
        _ => mistake(
            "a parameter is not UTF-8, or has a zero in it",
            "write bytes of UTF-8 behind %",
        ),
    }
}
