//! Connections over TCP, with and without TLS.

use super::*;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

struct Sealed {
    files: PathBuf,
    server: Server,
}

fn port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("its address").port()
}

fn with_roles(server: &Server) {
    let mut admin = Client::connect(&server.url("postgres"), NoTls).expect("the server");
    for role in ["sealed", "open", "certified"] {
        admin
            .batch_execute(&format!("CREATE ROLE {role} LOGIN SUPERUSER"))
            .expect("a role");
    }
}

fn sealed() -> &'static Sealed {
    static SEALED: OnceLock<Sealed> = OnceLock::new();
    SEALED.get_or_init(|| {
        let files = tempfile::tempdir().expect("a directory").keep();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/support/certificates.sh");
        let made = Command::new("sh").arg(script).arg(&files).status();
        assert!(made.expect("sh").success());
        let directory = tempfile::tempdir().expect("a directory").keep();
        for name in ["server.crt", "server.key", "authority.crt"] {
            fs::copy(files.join(name), directory.join(name)).expect("a copy");
        }
        let server = Server::start(directory, Some(port()));
        with_roles(&server);
        Sealed { files, server }
    })
}

struct Asked {
    database: TestDatabase,
    port: u16,
}

impl Asked {
    fn of(server: &Server) -> Asked {
        Asked {
            database: TestDatabase::of(server),
            port: server.port.expect("a port"),
        }
    }

    fn url(&self, role: &str, host: &str, parameters: &str) -> String {
        let (_, database) = self.database.url.split_once("@/").expect("a database");
        let (database, _) = database.split_once('?').expect("parameters");
        let files = format!("{}/", sealed().files.display());
        let parameters = parameters.replace('@', &files);
        format!("postgresql://{role}@{host}:{}/{database}?{parameters}", self.port)
    }

    fn encrypted(&self) -> Vec<bool> {
        let rows = self.database.raw().query(
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
             WHERE application_name = 'forkyard-jobs' AND datname = current_database()",
            &[],
        );
        rows.expect("rows").iter().map(|row| row.get(0)).collect()
    }

    fn connects(&self, role: &str, host: &str, parameters: &str, by_tls: bool) {
        let opened = opened(&self.url(role, host, parameters), "node");
        let opened = opened.unwrap_or_else(|error| panic!("{role} {host} {parameters}: {error}"));
        assert_eq!(self.encrypted(), [by_tls], "{role} {host} {parameters}");
        drop(opened);
        let begun = Instant::now();
        while !self.encrypted().is_empty() {
            assert!(begun.elapsed() < PATIENCE, "the connection does not end");
        }
    }

    fn refusal(&self, role: &str, host: &str, parameters: &str) -> String {
        match opened(&self.url(role, host, parameters), "node") {
            Ok(_) => panic!("{role} {host} {parameters}: it connects"),
            Err(error) => error.to_string(),
        }
    }
}

#[test]
fn a_connection_is_encrypted_as_its_mode_says() {
    let asked = Asked::of(&sealed().server);
    for (mode, by_tls) in [
        ("", true),
        ("sslmode=disable", false),
        ("sslmode=allow", false),
        ("sslmode=prefer", true),
        ("sslmode=require", true),
    ] {
        asked.connects("forkyard", "127.0.0.1", mode, by_tls);
    }
    // If the server refuses one way, the other is tried where the mode allows it.
    asked.connects("sealed", "127.0.0.1", "sslmode=allow", true);
    asked.connects("open", "127.0.0.1", "sslmode=prefer", false);
    for (role, mode) in [("sealed", "disable"), ("open", "require")] {
        let refusal = asked.refusal(role, "127.0.0.1", &format!("sslmode={mode}"));
        assert!(refusal.contains("pg_hba.conf"), "{refusal}");
    }
    // As with libpq, TLS settings have no effect on a unix socket.
    let url = format!("{}&sslmode=require", asked.database.url);
    let opened = opened(&url, "node").expect("the socket");
    assert_eq!(asked.encrypted(), [false]);
    drop(opened);
}

#[test]
fn a_server_without_tls_is_reached_where_that_is_enough() {
    let server = Server::start(tempfile::tempdir().expect("a directory").keep(), Some(port()));
    let asked = Asked::of(&server);
    for mode in ["", "sslmode=allow", "sslmode=prefer", "sslmode=disable"] {
        asked.connects("forkyard", "127.0.0.1", mode, false);
    }
    for parameters in [
        "sslmode=require",
        "sslmode=verify-full&sslrootcert=@authority.crt",
    ] {
        let refusal = asked.refusal("forkyard", "127.0.0.1", parameters);
        assert!(refusal.contains("server does not support TLS"), "{refusal}");
    }
}

#[test]
fn the_server_s_certificate_is_checked_as_far_as_the_mode_says() {
    let asked = Asked::of(&sealed().server);
    let own = "sslrootcert=@authority.crt";
    asked.connects(
        "forkyard",
        "localhost",
        &format!("sslmode=verify-full&{own}"),
        true,
    );
    for host in ["localhost", "127.0.0.1"] {
        asked.connects("forkyard", host, &format!("sslmode=verify-ca&{own}"), true);
    }
    // If there is no name, the address is checked, and the certificate does not contain it.
    let nameless = asked
        .url(
            "forkyard",
            "",
            &format!("hostaddr=127.0.0.1&sslmode=verify-full&{own}"),
        )
        .replace(&format!("@:{}/", asked.port), "@/")
        + &format!("&port={}", asked.port);
    let refusal = opened(&nameless, "node").err().expect("no name").to_string();
    assert!(refusal.contains("IP address mismatch"), "{refusal}");
    let refusal = asked.refusal("forkyard", "127.0.0.1", &format!("sslmode=verify-full&{own}"));
    assert!(
        refusal.ends_with("the server's certificate is not accepted: IP address mismatch"),
        "{refusal}"
    );
    // With a file, require checks like verify-ca.
    for parameters in [
        "sslmode=verify-full&sslrootcert=@other.crt",
        "sslmode=verify-ca&sslrootcert=@other.crt",
        "sslmode=require&sslrootcert=@other.crt",
        "sslrootcert=system",
    ] {
        let refusal = asked.refusal("forkyard", "localhost", parameters);
        assert!(
            refusal.contains("the server's certificate is not accepted: "),
            "{parameters}: {refusal}"
        );
    }
    // As with libpq, prefer then goes without TLS.
    asked.connects(
        "forkyard",
        "localhost",
        "sslmode=prefer&sslrootcert=@other.crt",
        false,
    );
}

#[test]
fn a_client_proves_who_it_is_by_a_certificate() {
    let asked = Asked::of(&sealed().server);
    let own = "sslmode=verify-full&sslrootcert=@authority.crt";
    let shown = format!("{own}&sslcert=@client.crt&sslkey=@client.key");
    asked.connects("certified", "localhost", &shown, true);
    let refusal = asked.refusal("certified", "localhost", own);
    assert!(
        refusal.contains("requires a valid client certificate"),
        "{refusal}"
    );
    // The server does not know this authority. With TLS 1.3 it checks the certificate after the client's handshake, and
    // its error is lost if the client writes to the closed connection.
    let other = shown.replace("client", "other");
    let mut refusals = Vec::new();
    while !refusals
        .last()
        .is_some_and(|last: &String| last.contains("unknown ca"))
    {
        assert!(refusals.len() < 50, "{refusals:?}");
        refusals.push(asked.refusal("certified", "localhost", &other));
    }
    // An unrequested certificate does no harm.
    asked.connects("forkyard", "localhost", &shown, true);
}

#[test]
fn a_file_that_can_not_be_used_is_named() {
    let asked = Asked::of(&sealed().server);
    let files = &sealed().files;
    fs::write(files.join("empty"), "").expect("a file");
    let key = fs::read(files.join("client.key")).expect("a key");
    fs::write(files.join("everybody.key"), key).expect("a file");
    fs::set_permissions(files.join("everybody.key"), Permissions::from_mode(0o644)).expect("a mode");
    let locked = Command::new("openssl")
        .args(["ec", "-aes128", "-passout", "pass:secret", "-in"])
        .arg(files.join("client.key"))
        .arg("-out")
        .arg(files.join("locked.key"))
        .output();
    assert!(locked.expect("openssl").status.success());
    fs::set_permissions(files.join("locked.key"), Permissions::from_mode(0o600)).expect("a mode");
    let client =
        |certificate: &str, key: &str| format!("sslmode=require&sslcert=@{certificate}&sslkey=@{key}");
    for (parameters, expected) in [
        (
            "sslmode=require&sslrootcert=@missing".to_owned(),
            "sslrootcert: @missing can't be read: No such file or directory (os error 2)",
        ),
        (
            "sslmode=prefer&sslrootcert=@empty".to_owned(),
            "sslrootcert: @empty has no certificate in PEM format",
        ),
        (
            client("missing", "client.key"),
            "sslcert: @missing can't be read: No such file or directory (os error 2)",
        ),
        (client("client.crt", ""), "sslkey: @ is no file"),
        (
            client("client.crt", "other.key"),
            "sslkey: @other.key is not the key of sslcert",
        ),
        (
            client("client.crt", "client.crt"),
            "sslkey: @client.crt can be used by others; give it the mode 0600, or 0640 if it belongs to root",
        ),
        (
            client("client.crt", "everybody.key"),
            "sslkey: @everybody.key can be used by others; give it the mode 0600, or 0640 if it belongs to root",
        ),
        (
            client("client.crt", "locked.key"),
            "sslkey: @locked.key has no key in PEM format without a password",
        ),
    ] {
        let refusal = asked.refusal("forkyard", "localhost", &parameters);
        let expected = expected.replace('@', &format!("{}/", files.display()));
        assert!(refusal.ends_with(&expected), "{refusal}");
    }
}

#[test]
fn what_machines_tell_each_other_is_encrypted_too() {
    let asked = Asked::of(&sealed().server);
    let url = asked.url(
        "sealed",
        "localhost",
        "sslmode=verify-full&sslrootcert=@authority.crt",
    );
    let database = TestDatabase { url };
    let (mut one, mut two) = (database.open_of("one", "a"), database.open_of("two", "b"));
    let (next, _) = heard_of_a_job(&mut one, &mut two);
    assert_eq!(asked.encrypted(), [true; 3]);
    asked.database.cut();
    assert_eq!(next(), Notice::News, "it hears again");
    push(&mut one, job(""));
    perform(&mut two, Operation::Promote, 1);
    assert_eq!(asked.encrypted(), [true; 3]);
}
