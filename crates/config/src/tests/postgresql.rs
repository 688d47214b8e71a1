use crate::postgresql::{ClientCertificate, Encryption, PostgresqlServer, Roots, SslMode};
use std::path::PathBuf;

fn parsed(url: &str) -> PostgresqlServer {
    PostgresqlServer::parse(url).unwrap_or_else(|mistake| panic!("{url}: {mistake:?}"))
}

fn encryption(parameters: &str) -> Encryption {
    parsed(&format!("postgresql://db/shop?{parameters}")).encryption
}

#[test]
fn a_url_is_taken_apart_into_what_the_client_library_knows_and_what_is_said_of_tls() {
    for (url, rest, mode) in [
        ("postgres://db", "postgres://db", SslMode::Prefer),
        (
            "postgresql:///shop?sslmode=disable",
            "postgresql:///shop",
            SslMode::Disable,
        ),
        (
            "postgresql://u:p?a&b=c@db/shop?sslmode=allow&port=1&&application_name=a%20b",
            "postgresql://u:p?a&b=c@db/shop?port=1&application_name=a%20b",
            SslMode::Allow,
        ),
        (
            "postgresql://db/shop?user=a@b&ssl%6Dode=disable&sslmode=require",
            "postgresql://db/shop?user=a@b",
            SslMode::Require,
        ),
        (
            "postgresql://db?channel_binding=require&sslmode=require&sslnegotiation=direct",
            "postgresql://db?channel_binding=require&sslnegotiation=direct",
            SslMode::Require,
        ),
    ] {
        let server = parsed(url);
        assert_eq!(
            (server.url.as_str(), server.encryption.mode),
            (rest, mode),
            "{url}"
        );
    }
}

#[test]
fn who_is_trusted_and_what_is_shown() {
    let roots = Some(Roots::File("/etc/root.crt".into()));
    let is = |mode, roots| Encryption {
        mode,
        roots,
        client: None,
    };
    for (parameters, expected) in [
        ("sslrootcert=", is(SslMode::Prefer, None)),
        (
            "sslrootcert=%2fetc%2Froot.crt",
            is(SslMode::Prefer, roots.clone()),
        ),
        (
            "sslmode=verify-ca&sslrootcert=/etc/root.crt",
            is(SslMode::VerifyCa, roots.clone()),
        ),
        (
            "sslmode=verify-full&sslrootcert=/etc/root.crt",
            is(SslMode::VerifyFull, roots),
        ),
        // Public certificates prove nothing unless the name is verified.
        ("sslrootcert=system", is(SslMode::VerifyFull, Some(Roots::System))),
    ] {
        assert_eq!(encryption(parameters), expected, "{parameters}");
    }
    let client = encryption("sslcert=/etc/%C3%A9.crt&sslkey=/etc/100%.key").client;
    let files = ClientCertificate {
        certificate: PathBuf::from("/etc/é.crt"),
        key: PathBuf::from("/etc/100%.key"),
    };
    assert_eq!(client, Some(files));
}

#[test]
fn what_can_not_be_meant_is_told_without_the_password() {
    for (parameters, problem, remedy) in [
        (
            "sslmode=",
            "sslmode= is not known",
            "write one of disable, allow, prefer, require, verify-ca, verify-full",
        ),
        (
            "sslmode=verify-full",
            "sslmode wants the server's certificate checked, and no authority is named",
            "add sslrootcert= followed by the path of a file with its certificate, or by system",
        ),
        (
            "sslmode=require&sslrootcert=system",
            "sslrootcert=system trusts every server that has a certificate, and sslmode does not look at its name",
            "write sslmode=verify-full, or name a file as sslrootcert",
        ),
        (
            "sslrootcert=root.crt",
            "sslrootcert=root.crt is not an absolute path",
            "start it with /",
        ),
        (
            "sslcert=/a",
            "sslcert needs sslkey",
            "add sslkey= followed by the path of a file",
        ),
        (
            "sslkey=/a",
            "sslkey needs sslcert",
            "add sslcert= followed by the path of a file",
        ),
        (
            "sslnegotiation=direct",
            "sslnegotiation=direct leaves no choice, and sslmode does",
            "write sslmode=require or verify-full",
        ),
        (
            "sslcrl=/a",
            "sslcrl is not understood",
            "leave it out; sslmode, sslrootcert, sslcert, sslkey and sslnegotiation are understood",
        ),
        (
            "sslrootcert=/%FF",
            "a parameter is not UTF-8, or has a zero in it",
            "write bytes of UTF-8 behind %",
        ),
    ] {
        let url = format!("postgresql://u:secret@db/shop?{parameters}");
        let mistake = PostgresqlServer::parse(&url).expect_err(parameters);
        assert_eq!(
            (mistake.problem.as_str(), mistake.remedy.as_str()),
            (problem, remedy),
            "{parameters}"
        );
    }
    // If the password's end is ambiguous, no mode may be missed.
    let unclear = PostgresqlServer::parse("postgresql://u:a/b?c@db/shop?sslmode=require");
    assert!(
        unclear
            .expect_err("a slash")
            .problem
            .starts_with("it is not clear")
    );
}
