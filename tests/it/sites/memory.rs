//! `memory_limit`: an instance that uses more is replaced after its request, whatever it runs.

use super::Sites;
use crate::support::until;
use std::collections::BTreeMap;

/// What each instance holds on to, once it was asked to: a hundred MB. PHP keeps half of what a request needed at most, and
/// more with each further one.
const PHP: &str = "<?php ini_set('memory_limit', '512M'); $held = []; if (isset($_GET['hoard'])) { \
                   for ($i = 0; $i < 10000; $i++) $held[] = str_repeat('x', 10000); } echo getmypid();";
const WSGI: &str = "import os\nheld = []\ndef application(environ, start_response):\n    \
                    if environ['QUERY_STRING'] and not held:\n        held.append(b'x' * 100_000_000)\n    \
                    start_response('200 OK', [])\n    return [str(os.getpid()).encode()]\n";
const ASGI: &str = "import os\nheld = []\nasync def application(scope, receive, send):\n    \
                    assert scope['type'] == 'http'\n    \
                    if scope['query_string'] and not held:\n        held.append(b'x' * 100_000_000)\n    \
                    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
                    await send({'type': 'http.response.body', 'body': str(os.getpid()).encode()})\n";
const RACK: &str = "held = nil\nrun ->(env) { held ||= 'x' * 100_000_000 unless env['QUERY_STRING'].empty?\n\
                    [200, {}, [Process.pid.to_s]] }\n";
/// Speaks FastCGI with one request on each connection.
const FASTCGI: &str = r#"
import os, socket, struct

def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content

def take(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            return None
        data += more
    return data

listener, held = socket.socket(fileno=0), []
while True:
    connection, _ = listener.accept()
    params = b""
    while (head := take(connection, 8)):
        _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", head)
        content = take(connection, length + padding)
        if kind == 4:
            params += content
        if kind != 5 or length:
            continue
        if b"QUERY_STRINGhoard" in params and not held:
            held.append(b"x" * 100_000_000)
        page = b"Content-Type: text/plain\r\n\r\n%d" % os.getpid()
        connection.sendall(record(6, page) + record(6, b"") + record(3, bytes(8)))
        break
    connection.close()
"#;
const FASTCGI_SETTINGS: &str = "runtime = \"fastcgi\"\nstart_command = \"python3 app.py\"\n";

#[test]
fn an_instance_of_any_runtime_that_uses_more_memory_than_it_may_is_replaced() {
    let sites = Sites::start("max = 10\nmemory_limit = \"64M\"");
    let kinds = [
        ("php", vec![("index.php", PHP)]),
        ("wsgi", vec![("passenger_wsgi.py", WSGI)]),
        ("asgi", vec![("asgi.py", ASGI)]),
        ("rack", vec![("config.ru", RACK)]),
        (
            "fastcgi",
            vec![("app.py", FASTCGI), ("forkyard.toml", FASTCGI_SETTINGS)],
        ),
    ];
    let mut first = BTreeMap::new();
    for (kind, files) in &kinds {
        for manner in ["modest", "hoards"] {
            let name = format!("{kind}-{manner}");
            sites.add(&name, 0, files);
            first.insert(name.clone(), sites.body(&format!("/{name}/")));
        }
    }
    // Memory is measured after a request, every few seconds at most.
    for (kind, _) in &kinds {
        let hoards = format!("{kind}-hoards");
        until(&format!("another instance of {hoards}"), || {
            sites.body(&format!("/{kind}-modest/"));
            (sites.body(&format!("/{hoards}/?hoard")) != first[&hoards]).then_some(())
        });
    }
    for (kind, _) in &kinds {
        let modest = format!("{kind}-modest");
        assert_eq!(sites.body(&format!("/{modest}/")), first[&modest], "{modest}");
    }
    let log = sites.daemon.log();
    assert!(log.contains("it uses more than memory_limit"), "{log}");
    sites.end();
}
