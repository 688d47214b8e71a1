//! TLS: trusted authorities and client certificates, by libpq's files and rules.

use forkyard_config::{ClientCertificate, Encryption, Roots, SslMode};
use openssl::error::ErrorStack;
use openssl::pkey::{PKey, Private};
use openssl::ssl::{self, SslConnector, SslConnectorBuilder, SslMethod, SslVerifyMode, SslVersion};
use openssl::x509::X509;
use openssl::x509::store::X509StoreBuilder;
use postgres_openssl::{MakeTlsConnector, set_postgresql_alpn};
use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{0}: {1} can't be read: {2}")]
    Read(&'static str, PathBuf, #[source] io::Error),
    #[error("{0}: {1} {2}")]
    Content(&'static str, PathBuf, &'static str),
    #[error("TLS: {0}")]
    Library(#[from] ErrorStack),
}

pub(crate) fn connector(encryption: &Encryption) -> Result<MakeTlsConnector, TlsError> {
    let mut builder = SslConnector::builder(SslMethod::tls_client())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_2))?;
    set_postgresql_alpn(&mut builder)?;
    if encryption.mode != SslMode::Disable {
        trust(&mut builder, encryption.roots.as_ref())?;
        if let Some(client) = &encryption.client {
            show(&mut builder, client)?;
        }
    }
    let checks_name = encryption.mode == SslMode::VerifyFull;
    let mut connector = MakeTlsConnector::new(builder.build());
    connector.set_callback(move |connection, _| {
        connection.set_verify_hostname(checks_name);
        Ok(())
    });
    Ok(connector)
}

fn trust(builder: &mut SslConnectorBuilder, roots: Option<&Roots>) -> Result<(), TlsError> {
    const NAME: &str = "sslrootcert";
    match roots {
        None => builder.set_verify(SslVerifyMode::NONE),
        Some(Roots::System) => builder.set_verify(SslVerifyMode::PEER),
        Some(Roots::File(path)) => {
            let mut store = X509StoreBuilder::new()?;
            for root in certificates(NAME, path)? {
                store.add_cert(root)?;
            }
            builder.set_cert_store(store.build());
            builder.set_verify(SslVerifyMode::PEER);
        }
    }
    Ok(())
}

fn show(builder: &mut SslConnectorBuilder, client: &ClientCertificate) -> Result<(), TlsError> {
    const NAME: &str = "sslcert";
    let mut chain = certificates(NAME, &client.certificate)?.into_iter();
    if let Some(own) = chain.next() {
        builder.set_certificate(&own)?;
    }
    for between in chain {
        builder.add_extra_chain_cert(between)?;
    }
    let key = key(&client.key)?;
    let not_its = |_| TlsError::Content("sslkey", client.key.clone(), "is not the key of sslcert");
    builder.set_private_key(&key).map_err(not_its)?;
    builder.check_private_key().map_err(not_its)
}

fn certificates(name: &'static str, path: &Path) -> Result<Vec<X509>, TlsError> {
    let (text, _) = read(name, path)?;
    match X509::stack_from_pem(&text) {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TlsError::Content(
            name,
            path.to_owned(),
            "has no certificate in PEM format",
        )),
    }
}

/// Reads a private key. As with libpq only its owner may read it, or also its group if root owns it.
fn key(path: &Path) -> Result<PKey<Private>, TlsError> {
    const NAME: &str = "sslkey";
    let (text, status) = read(NAME, path)?;
    let others = if status.uid() == 0 { 0o037 } else { 0o077 };
    if status.mode() & others != 0 {
        let problem = "can be used by others; give it the mode 0600, or 0640 if it belongs to root";
        return Err(TlsError::Content(NAME, path.to_owned(), problem));
    }
    // OpenSSL asks for a password on the terminal unless it gets one.
    PKey::private_key_from_pem_passphrase(&text, b"").map_err(|_| {
        let problem = "has no key in PEM format without a password";
        TlsError::Content(NAME, path.to_owned(), problem)
    })
}

fn read(name: &'static str, path: &Path) -> Result<(Vec<u8>, std::fs::Metadata), TlsError> {
    let failed = |error| TlsError::Read(name, path.to_owned(), error);
    let mut file = File::open(path).map_err(failed)?;
    let status = file.metadata().map_err(failed)?;
    if !status.is_file() {
        return Err(TlsError::Content(name, path.to_owned(), "is no file"));
    }
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(failed)?;
    Ok((text, status))
}

pub(crate) fn handshake_failure(error: &tokio_postgres::Error) -> Option<String> {
    let outer = error.source()?;
    let inner = outer.source()?.downcast_ref::<ssl::Error>()?;
    // The certificate's fault is only in the inner error.
    let whole = outer.to_string();
    let found = whole.strip_prefix(&inner.to_string()).unwrap_or_default();
    let reasons: Vec<&str> = (inner.ssl_error().iter())
        .flat_map(|stack| stack.errors())
        .filter_map(|error| error.reason())
        .collect();
    let is_refused = reasons.contains(&"certificate verify failed");
    Some(match found.strip_prefix(": ").filter(|_| is_refused) {
        Some(found) => format!("the server's certificate is not accepted: {found}"),
        None if reasons.is_empty() => format!("TLS: {inner}"),
        None => format!("TLS: {}", reasons.join(", ")),
    })
}
