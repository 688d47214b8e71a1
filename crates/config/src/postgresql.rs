//! Parses a PostgreSQL server's URL with libpq's parameters. The client library handles all except TLS.

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

pub(crate) const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];

const MODE: &str = "sslmode";
const ROOT: &str = "sslrootcert";
const CERTIFICATE: &str = "sslcert";
const KEY: &str = "sslkey";
const NEGOTIATION: &str = "sslnegotiation";

const MODES: [(&str, SslMode); 6] = [
    ("disable", SslMode::Disable),
    ("allow", SslMode::Allow),
    ("prefer", SslMode::Prefer),
    ("require", SslMode::Require),
    ("verify-ca", SslMode::VerifyCa),
    ("verify-full", SslMode::VerifyFull),
];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostgresqlServer {
    /// The URL without TLS parameters.
    pub url: String,
    pub encryption: Encryption,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encryption {
    pub mode: SslMode,
    /// The trusted authorities. `None`: don't verify the certificate.
    pub roots: Option<Roots>,
    pub client: Option<ClientCertificate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SslMode {
    Disable,
    /// Encrypt if the server requires it.
    Allow,
    /// Encrypt if the server supports it.
    Prefer,
    Require,
    /// Always encrypt and verify the certificate's authority.
    VerifyCa,
    /// Always encrypt and verify the authority and the server's name.
    VerifyFull,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Roots {
    System,
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCertificate {
    /// The certificate file, with intermediate certificates.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// An invalid URL. Never contains the URL itself, which may include a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlMistake {
    pub problem: String,
    pub remedy: String,
}

fn mistake<T>(problem: impl Into<String>, remedy: impl Into<String>) -> Result<T, UrlMistake> {
    Err(UrlMistake {
        problem: problem.into(),
        remedy: remedy.into(),
    })
}

/// The TLS parameters. The last value wins, as in libpq.
#[derive(Default)]
struct TlsOptions {
    mode: Option<String>,
    root: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    negotiation: Option<String>,
}

impl PostgresqlServer {
    /// Splits TLS parameters from a URL.
    ///
    /// # Errors
    /// The TLS parameters are invalid or unsupported.
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
        // The client library may find the password's end elsewhere and see a TLS parameter that was missed here.
        if [MODE, ROOT].iter().any(|name| rest.contains(&format!("{name}="))) {
            let remedy = "write / and ? of a password as %2F and %3F";
            return mistake(
                format!("it is not clear whether this sets {MODE} or {ROOT}"),
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

/// Splits off the parameters. A password may contain a question mark.
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

fn decoded(text: &str) -> Result<String, UrlMistake> {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) if !decoded.contains('\0') => Ok(decoded.into_owned()),
        _ => mistake(
            "a parameter is not UTF-8, or has a zero in it",
            "write bytes of UTF-8 behind %",
        ),
    }
}
