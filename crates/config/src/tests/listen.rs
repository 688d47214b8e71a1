use std::path::PathBuf;

use super::*;

fn listening(listen: &str) -> String {
    format!(
        "[pool.www]\n{listen}\nuser = \"www-data\"\npm = \"static\"\nmax_children = 2\n\
         application = {{ runtime = \"php\", version = \"8.2\" }}\n"
    )
}

#[test]
fn rules_of_the_listening_socket() {
    cases(
        |address| listening(&format!("listen = \"{address}\"")),
        &ROOT,
        r#"
        ! 2:1: error: [pool www] listen: "" is not an address; write an absolute path, "ADDRESS:PORT", "[IPV6]:PORT" or a port
        127.0.0.1:99999
        ! 2:1: error: [pool www] listen: "99999" is not a port; give a number from 1 to 65535
        127.0.0.1:0
        ! 2:1: error: [pool www] listen: "0" is not a port; give a number from 1 to 65535
        127.0.0.1:+80
        ! 2:1: error: [pool www] listen: "+80" is not a port; give a number from 1 to 65535
        127.0.0.1:
        ! 2:1: error: [pool www] listen: "" is not a port; give a number from 1 to 65535
        70000
        ! 2:1: error: [pool www] listen: "70000" is not a port; give a number from 1 to 65535
        run/a.sock
        ! 2:1: error: [pool www] listen: "run/a.sock" is not an address; write an absolute path, "ADDRESS:PORT", "[IPV6]:PORT" or a port
        ::1:9000
        ! 2:1: error: [pool www] listen: the IPv6 address "::1" is not in brackets; write "[IPV6]:PORT"
        [::1:9000
        ! 2:1: error: [pool www] listen: "[::1" is not an IPv6 address in brackets; write an absolute path, "ADDRESS:PORT", "[IPV6]:PORT" or a port
        [::g]:9000
        ! 2:1: error: [pool www] listen: "[::g]" is not an IPv6 address in brackets; write an absolute path, "ADDRESS:PORT", "[IPV6]:PORT" or a port
        nowhere:9000
        ! 2:1: error: [pool www] listen: the host "nowhere" is not known; give a name that this machine can resolve, or an address
        :9000
        ! 2:1: error: [pool www] listen: the host "" is not known; give a name that this machine can resolve, or an address
    "#,
    );
    let long = format!("listen = \"/run/{}\"", "x".repeat(103));
    one(
        &listening(&long),
        &ROOT,
        "2:1: error: [pool www] listen: the path has 108 bytes; a unix socket's path may have 107",
    );
    cases(
        listening,
        &ROOT,
        r#"
        ! 1:7: error: [pool www] listen: missing; write listen = "/run/forkyard-www.sock" or listen = "127.0.0.1:9000"
        listen = {}
        ! 2:1: error: [pool www] listen: a table is not a string; write text in quotes, without NUL characters
        listen = 9000
        ! 2:1: error: [pool www] listen: 9000 is not a string; write text in quotes, without NUL characters
        listen = "/run"
        ! 2:1: error: [pool www] listen: "/run" is a directory; give the path of the socket itself
        listen = "/nodir/a.sock"
        ! 2:1: warning: [pool www] listen: "/nodir" is not an existing directory; make it before the start
        listen = { address = "9000", backlog = -2 }
        ! 2:30: error: [pool www] listen.backlog: -2 is out of range; give a whole number from -1 to 2147483647
        listen = { address = "/run/a", mode = "0999" }
        ! 2:32: error: [pool www] listen.mode: "0999" is not a file mode; write octal digits in quotes, at most "0777", for example "0660"
        listen = { address = "/run/a", mode = 660 }
        ! 2:32: error: [pool www] listen.mode: 660 is not a file mode; write octal digits in quotes, at most "0777", for example "0660"
        listen = { address = "/run/a", owner = "4294967295" }
        ! 2:32: error: [pool www] listen.owner: "4294967295" is no id of a user; give a number from 0 to 4294967294, or name an existing user
        listen = { address = "/run/a", group = "4294967295" }
        ! 2:32: error: [pool www] listen.group: "4294967295" is no id of a group; give a number from 0 to 4294967294, or name an existing group
        listen = { address = "/run/a", owner = "gone" }
        ! 2:32: error: [pool www] listen.owner: there is no user "gone"; name an existing user, or give a numeric id
        listen = { address = "/run/a", group = "gone" }
        ! 2:32: error: [pool www] listen.group: there is no group "gone"; name an existing group, or give a numeric id
        listen = { address = "9000", mode = "0600" }
        ! 2:30: warning: [pool www] listen.mode: it has no effect on a TCP socket; use allowed_clients
        listen = { address = "/run/a", allowed_clients = ["::1"] }
        ! 2:32: warning: [pool www] listen.allowed_clients: it has no effect on a unix socket; use owner, group and mode
        listen = { address = "9000", allowed_clients = ["10.0.0.0/8"] }
        ! 2:30: error: [pool www] listen.allowed_clients: "10.0.0.0/8" is not an IP address; write single addresses, for example ["127.0.0.1", "::1"]
        listen = { address = "9000", allowed_clients = [] }
        ! 2:30: error: [pool www] listen.allowed_clients: no address is in the list; name one, or leave the setting out to let every address connect
        listen = { address = "9000", allowed_clients = "::1" }
        ! 2:30: error: [pool www] listen.allowed_clients: "::1" is not an array of strings; write ["one", "two"]
        listen = { address = "9000", acl_users = "a" }
        ! 2:30: error: [pool www] listen.acl_users: "a" is not an array of strings; write ["one", "two"]
    "#,
    );
}

#[test]
fn forms_of_the_address() {
    let unix = Address::Unix(PathBuf::from("/run/www.sock"));
    for (line, expected) in [
        ("listen = \"/run/$pool.sock\"", unix),
        (
            "listen = \"127.0.0.1:9000\"",
            Address::Tcp("127.0.0.1:9000".parse().unwrap()),
        ),
        (
            "listen.address = \"localhost:9000\"",
            Address::Tcp("127.0.0.1:9000".parse().unwrap()),
        ),
        (
            "listen = { address = \"[::1]:9000\" }",
            Address::Tcp("[::1]:9000".parse().unwrap()),
        ),
        ("listen = \"9000\"", Address::TcpAny(9000)),
    ] {
        assert_eq!(valid(&listening(line)).pools[0].listen.address, expected);
    }
}

#[test]
fn addresses_are_not_shared() {
    let two = |a: &str, b: &str| {
        let b = listening(&format!("listen = \"{b}\"")).replace("pool.www", "pool.api");
        format!("{}{b}", listening(&format!("listen = \"{a}\"")))
    };
    for (a, b) in [
        ("/run/a", "/run/a"),
        ("9000", "9000"),
        ("9000", "127.0.0.1:9000"),
        ("0.0.0.0:9000", "127.0.0.1:9000"),
        ("[::1]:9000", "[::]:9000"),
        ("[::]:9000", "127.0.0.1:9000"),
        ("0.0.0.0:9000", "[::]:9000"),
        ("localhost:9000", "127.0.0.1:9000"),
    ] {
        let expected = format!(
            "8:1: error: [pool api] listen: pool www already listens on \"{b}\"; give each pool its own address"
        );
        one(&two(a, b), &ROOT, &expected);
    }
    for (a, b) in [
        ("9000", "9001"),
        ("127.0.0.1:9000", "127.0.0.2:9000"),
        ("0.0.0.0:9000", "[::1]:9000"),
        ("/run/a", "9000"),
        ("/run/a", "/link/b"),
    ] {
        assert_eq!(found(&two(a, b), &ROOT), [""; 0], "{a} {b}");
    }
    for (a, b) in [
        ("/run/a", "/link/a"),
        ("/link/a", "/run/a"),
        ("/run/../run/a", "/run/a"),
        ("/run//a", "/run/../run/./a"),
    ] {
        let expected = format!(
            "8:1: error: [pool api] listen: pool www already listens on \"{b}\", with the path \"{a}\"; give each pool its own \
             address"
        );
        one(&two(a, b), &ROOT, &expected);
    }
    for (key, listen) in [
        ("status_listen = \"/run/s\"", "/link/s"),
        ("status_listen = \"9001\"", "127.0.0.1:9001"),
        ("", "/link/a"),
    ] {
        let pool = listening("listen = \"/run/a\"").replace("pm =", &format!("{key}\npm ="));
        let web = format!("[global]\nweb = \"{listen}\"\n{pool}");
        let expected = "2:1: error: global.web: pool www listens on it; give the numbers their own address";
        one(&web, &ROOT, expected);
        if listen.starts_with('/') {
            let control = format!("[global]\ncontrol = \"{listen}\"\n{pool}");
            let expected =
                "2:1: error: global.control: pool www listens on it; give the control socket its own path";
            one(&control, &ROOT, expected);
        }
    }
}

#[test]
fn pools_are_in_the_order_of_the_text() {
    let text = format!(
        "{}{}",
        listening("listen = \"/run/z\"").replace("www]", "zzz]"),
        listening("listen = \"/run/a\"")
    );
    let names: Vec<String> = valid(&text).pools.iter().map(|pool| pool.name.clone()).collect();
    assert_eq!(names, ["zzz", "www"]);
}

#[test]
fn the_status_address_is_like_the_pool_s() {
    let with = |lines: &str| {
        listening("listen = { address = \"/run/a\", mode = \"0600\", backlog = 5 }")
            .replace("pm =", &format!("{lines}\npm ="))
    };
    let pool = |lines: &str| match parsed(&with(lines), &ROOT) {
        Ok(loaded) => loaded.config.pools[0].as_ref().clone(),
        Err(errors) => panic!("{errors}"),
    };
    assert_eq!(pool("").pages.status_listen, None);
    let both = pool("status_listen = \"127.0.0.1:9001\"\nstatus_path = \"/\"");
    let status = both.pages.status_listen.expect("it is given");
    assert_eq!(status.address, Address::Tcp("127.0.0.1:9001".parse().unwrap()));
    assert_eq!((status.mode, status.backlog), (0o600, -1));
    assert_eq!(both.pages.status_path.as_deref(), Some("/"));
    cases(
        with,
        &ROOT,
        r#"
        status_listen = "/run/a"
        ! 4:1: error: [pool www] status_listen: pool www already listens on "/run/a"; give each pool its own address
        status_listen = "nowhere"
        ! 4:1: error: [pool www] status_listen: "nowhere" is not an address; write an absolute path, "ADDRESS:PORT", "[IPV6]:PORT" or a port
    "#,
    );
}
