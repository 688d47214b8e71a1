//! Node.js programs listen on a private socket that only the pool's workers reach.

use super::programs::{ONDEMAND, Site};
use crate::support::prelude::*;
use std::os::unix::fs::FileTypeExt;

fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.local_addr().expect("an address").port()
}

fn directories(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).expect("the directory").map_while(Result::ok);
    let names = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("forkyard.app."));
    names.map(|entry| entry.path()).collect()
}

fn ports(site: &Site) -> Vec<String> {
    let inodes: Vec<String> = site
        .processes()
        .into_iter()
        .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten())
        .filter_map(|fd| {
            Some(
                fs::read_link(fd.ok()?.path())
                    .ok()?
                    .to_string_lossy()
                    .into_owned(),
            )
        })
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| read_file(format!("/proc/net/{table}")));
    let lines = tables.iter().flat_map(|table| table.lines());
    let listening = lines.filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_own = inodes.iter().any(|inode| fields.get(9) == Some(&inode.as_str()));
        (is_own && fields.get(3) == Some(&"0A")).then(|| fields[1].to_owned())
    });
    listening.collect()
}

fn programs(port: u16) -> Vec<(&'static str, String, String, String)> {
    let answer = "(q, r) => r.end(q.url === '/address' ? JSON.stringify(server.address()) : 'hello')";
    let create = format!("const server = require('http').createServer({answer});\n");
    let said =
        |host: &str, family: &str| format!(r#"{{"address":"{host}","family":"{family}","port":{port}}}"#);
    let all = said("::", "IPv6");
    let local = said("127.0.0.1", "IPv4");
    vec![
        (
            "app.js",
            format!("{create}server.listen({port});"),
            String::new(),
            all.clone(),
        ),
        (
            "app.js",
            format!("{create}server.listen('{port}', '127.0.0.1', () => console.log('it listens'));"),
            String::new(),
            local.clone(),
        ),
        (
            "app.js",
            format!("{create}server.listen({{ port: {port}, host: 'localhost', backlog: 7 }});"),
            String::new(),
            local,
        ),
        (
            "app.mjs",
            format!(
                "import {{ createServer }} from 'node:http';\nconst server = createServer({answer});\n\
                 await new Promise((done) => server.listen({port}, done));"
            ),
            "start_command = \"node app.mjs\"".to_owned(),
            all.clone(),
        ),
        (
            "app.js",
            format!(
                "const app = require('express')();\nlet server;\n\
                 app.get('/address', (q, r) => r.end(JSON.stringify(server.address())));\n\
                 app.use((q, r) => r.end('hello'));\nserver = app.listen({port});"
            ),
            "start_command = \"env NODE_PATH=/usr/share/nodejs node app.js\"".to_owned(),
            all.clone(),
        ),
        (
            "app.js",
            format!("const server = require('https').createServer({{}}, {answer});\nserver.listen({port});"),
            String::new(),
            all.clone(),
        ),
        (
            "app.js",
            format!(
                "const server = require('http2').createServer({answer});\nserver.listen({port}, () => {{}});"
            ),
            String::new(),
            all.clone(),
        ),
        (
            "app.js",
            format!(
                "const cluster = require('cluster');\nif (cluster.isPrimary) {{ cluster.fork(); cluster.fork(); }} else \
                 {{\n{create}server.listen({port});\n}}"
            ),
            String::new(),
            all.clone(),
        ),
        (
            "app.js",
            format!(
                "const threads = require('worker_threads');\nif (threads.isMainThread) new threads.Worker(__filename); \
                 else {{\n{create}server.listen({port});\n}}"
            ),
            String::new(),
            all,
        ),
    ]
}

#[test]
fn whatever_a_program_asks_for_it_listens_on_its_own_socket() {
    for (file, source, application, said) in programs(port()) {
        let mut site = Site::start(&[(file, source.as_str())], ONDEMAND, "node", &application);
        assert_eq!(site.get("x"), "hello", "{source}");
        assert_eq!(site.get("address"), said, "{source}");
        assert_eq!(ports(&site), Vec::<String>::new(), "{source}");
        let [directory] = &directories(&site.temporary)[..] else {
            panic!("one directory: {:?}", directories(&site.temporary));
        };
        let found = fs::metadata(directory).expect("the directory");
        assert_eq!(found.mode() & 0o777, 0o700);
        let socket = fs::metadata(directory.join("socket")).expect("the socket");
        assert!(socket.file_type().is_socket() && socket.uid() == found.uid());
        site.daemon.signal(Signal::SIGTERM);
        site.daemon.wait();
        assert_eq!(directories(&site.temporary), Vec::<PathBuf>::new(), "{source}");
    }
}

#[test]
fn a_second_server_is_left_alone_and_one_that_asks_by_name_is_the_one() {
    let (first, second) = (port(), port());
    let program = format!(
        "const http = require('http');\nconst serve = (text) => http.createServer((q, r) => r.end(text));\n\
         serve('first').listen({first}, '127.0.0.1', () => serve('twin').listen({first}, '::1', () =>\n  \
         serve('second').listen({second}, '127.0.0.1', () => console.log('all listen'))));"
    );
    let site = Site::start(&[("app.js", &program)], ONDEMAND, "node", "");
    assert_eq!(site.get("x"), "first");
    until("the second server", || {
        TcpStream::connect(("127.0.0.1", second)).ok()
    });
    assert_eq!(ports(&site).len(), 1);
    assert!(TcpStream::connect(("127.0.0.1", first)).is_err());
    drop(site);
    for name in ["passenger", "forkyard"] {
        let program = format!(
            "PhusionPassenger.configure({{ autoInstall: false }});\nconst http = require('http');\n\
             http.createServer((q, r) => r.end('metrics')).listen({second}, '127.0.0.1', () =>\n  \
             http.createServer((q, r) => r.end('named')).listen('{name}'));"
        );
        let site = Site::start(&[("app.js", &program)], ONDEMAND, "node", "");
        assert_eq!(site.get("x"), "named");
        TcpStream::connect(("127.0.0.1", second)).expect("the other server");
    }
}

#[test]
fn child_processes_and_options_of_the_application_work() {
    let program = "const { fork, execFileSync } = require('child_process');\nconst http = require('http');\n\
        if (process.argv[2]) {\n  \
          const helper = http.createServer((q, r) => r.end('helper'));\n  \
          helper.listen(0, '127.0.0.1', () => process.send(helper.address().port));\n\
        } else {\n  \
          fork(__filename, ['helper']).on('message', (port) => {\n    \
            const child = execFileSync(process.execPath, ['-p', '1 + 1']).toString().trim();\n    \
            http.createServer((q, r) => http.get({ port, host: '127.0.0.1' }, (answer) => {\n      \
              answer.on('data', (text) => r.end(`${text} ${child} ${process.title}`));\n    \
            })).listen(3000);\n  \
          });\n\
        }\n";
    let pool = format!("{ONDEMAND}env.NODE_OPTIONS = \"--title=mine --max-http-header-size=30000\"\n");
    let site = Site::start(&[("app.js", program)], &pool, "node", "");
    assert_eq!(site.get("x"), "helper 2 mine");
}

#[test]
fn what_an_application_asks_at_its_own_port_it_is_asked() {
    let ways = "const url = (host, port) => `http://${host}:${port}/inner`;\n\
        const got = (host, port, more = {}) => new Promise((done, fail) => http.get(\n  \
          { host, port, path: '/inner', ...more }, (answer) => answer.on('data', done)).on('error', fail));\n\
        const raw = (...how) => new Promise((done, fail) => {\n  \
          const socket = net.connect(...how);\n  \
          socket.on('error', fail).on('data', (text) => done(`${text}`.slice(-5)));\n  \
          socket.write('GET /inner HTTP/1.0\\r\\n\\r\\n');\n\
        });\n\
        const script = 'fetch(`http://localhost:${process.env.PORT}/inner`).then((a) => a.text()).then';\n\
        const ways = (port) => [\n  \
          () => fetch(url('localhost', port)).then((answer) => answer.text()),\n  \
          () => fetch(url('127.0.0.1', port)).then((answer) => answer.text()),\n  \
          () => fetch(url('[::1]', port)).then((answer) => answer.text()),\n  \
          () => fetch(url('0.0.0.0', port)).then((answer) => answer.text()),\n  \
          () => got('localhost', port), () => got('::1', port), () => got(undefined, port),\n  \
          () => got('LOCALHOST', port, { agent: new http.Agent({ keepAlive: true }) }),\n  \
          () => got('127.0.0.1', port, { agent: false }),\n  \
          () => raw(Number(port)), () => raw(port, '127.0.0.1'), () => raw({ port, host: 'localhost' }),\n\
        ];\n\
        const others = [\n  \
          () => promisify(execFile)(process.execPath, ['-e', `${script}(console.log)`]).then((it) => it.stdout.trim()),\n  \
          () => new Promise((done, fail) => new Worker(`${script}((text) => require('worker_threads').parentPort.postMessage(text))`,\n    \
            { eval: true }).on('message', done).on('error', fail)),\n\
        ];\n\
        const all = async (ports) => {\n  \
          for (const way of [...ports.flatMap(ways), ...others]) {\n    \
            const said = await way().then(String, (error) => `${error} ${error.cause ?? ''}`);\n    \
            if (said !== 'inner') return `${way}: ${said}`;\n  \
          }\n  \
          return 'all are answered';\n\
        };\n";
    let modules = [
        ("http", "http"),
        ("net", "net"),
        ("{ promisify }", "util"),
        ("{ execFile }", "child_process"),
        ("{ Worker }", "worker_threads"),
    ];
    let required = modules.map(|(name, module)| format!("const {name} = require('{module}');\n"));
    let imported = modules.map(|(name, module)| format!("import {name} from 'node:{module}';\n"));
    let asked = port();
    let own = "process.env.PORT".to_owned();
    for (file, lines, wish) in [
        ("app.js", required.concat(), &own),
        ("app.mjs", imported.concat(), &own),
        ("app.js", required.concat(), &asked.to_string()),
    ] {
        let program = format!(
            "{lines}{ways}const serve = () => http.createServer(async (q, r) => r.end(\n  \
             q.url === '/inner' ? 'inner' : await all([process.env.PORT, {wish}]))).listen({wish});\n\
             const trial = net.createServer().listen({wish}, () => trial.close(serve));\n"
        );
        let application = format!("start_command = \"node {file}\"");
        let site = Site::start(&[(file, program.as_str())], ONDEMAND, "node", &application);
        assert_eq!(site.get("x"), "all are answered", "{file} {wish}");
        assert_eq!(ports(&site), Vec::<String>::new());
    }
}

#[test]
fn connections_to_other_ports_and_hosts_are_left_alone() {
    let other = TcpListener::bind("127.0.0.1:0").expect("bind");
    let asked = other.local_addr().expect("an address").port();
    let answering = std::thread::spawn(move || {
        let (mut client, _) = other.accept().expect("a connection");
        std::io::Write::write_all(&mut client, b"HTTP/1.0 200 OK\r\n\r\nother").expect("an answer");
    });
    let program = format!(
        "const early = fetch(`http://localhost:${{process.env.PORT}}/`).catch((error) => error.cause);\n\
         early.then((error) => require('http').createServer(async (q, r) => {{\n  \
           const text = await fetch('http://127.0.0.1:{asked}/').then((answer) => answer.text());\n  \
           const code = (error.errors?.[0] ?? error).code;\n  \
           r.end(`${{text}} ${{code}}`);\n\
         }}).listen(process.env.PORT));\n"
    );
    let site = Site::start(&[("app.js", &program)], ONDEMAND, "node", "");
    assert_eq!(site.get("x"), "other ECONNREFUSED");
    answering.join().expect("the other program");
}

#[test]
fn other_users_of_the_machine_can_not_reach_a_program_of_node() {
    skip_if!(needs_root());
    let asked = port();
    let program = format!("require('http').createServer((q, r) => r.end('secret')).listen({asked});");
    let site = Site::start(&[("app.js", &program)], ONDEMAND, "node", "");
    assert_eq!(site.get("x"), "secret");
    let socket = directories(&site.temporary)[0].join("socket");
    let owner = fs::metadata(&socket).expect("the socket").uid();
    let ask = |uid: u32| {
        let script = "import socket, sys\nclient = socket.socket(socket.AF_UNIX)\nclient.connect(sys.argv[1])\n\
                      client.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\nprint(client.recv(65536).decode()[-6:])";
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(&socket);
        let output = command.uid(uid).gid(uid).output().expect("python3");
        (
            String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            text_of(&output.stderr),
        )
    };
    assert_eq!(ask(owner).0, "secret", "its own user can");
    for stranger in [54_321, 54_322] {
        let (answer, error) = ask(stranger);
        assert!(
            answer.is_empty() && error.contains("PermissionError"),
            "{answer} {error}"
        );
    }
    for address in ["127.0.0.1", "::1"] {
        assert!(TcpStream::connect((address, asked)).is_err());
    }
}

#[test]
fn what_a_killed_daemon_has_left_goes_with_the_next() {
    let site = Site::start(
        &[(
            "app.js",
            "require('http').createServer((q, r) => r.end('x')).listen(3000);",
        )],
        ONDEMAND,
        "node",
        "",
    );
    assert_eq!(site.get("x"), "x");
    let old = directories(&site.temporary);
    assert_eq!(old.len(), 1);
    // A process still listening at the pool's socket would block the next daemon.
    let children = process::children(site.daemon.pid());
    process::signal(site.daemon.pid(), Signal::SIGKILL);
    wait_until("the program to end", || site.processes().is_empty());
    wait_until("the workers to end", || {
        let is_left = children.iter().any(|pid| process::runs(*pid));
        !is_left
    });
    assert!(old[0].exists());
    let mut command = forkyard(&["run"], &site.daemon.dir);
    command.env("TMPDIR", &site.temporary);
    let again = Daemon::launch(&site.daemon.dir, command).ready();
    wait_until("the old directory to go", || !old[0].exists());
    assert_eq!(again.get("app", "x").body(), "x");
}

#[test]
fn a_program_listens_on_the_socket_that_it_is_given() {
    let program = "import os, socket\nserver = socket.socket(socket.AF_UNIX)\nserver.bind(os.environ['SOCKET'])\n\
        server.listen(8)\nwhile True:\n    client, _ = server.accept()\n    \
        if client.recv(65536):\n        \
        body = os.environ.get('PORT', 'no port').encode()\n        \
        client.sendall(b'HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n%s' % (len(body), body))\n    \
        client.close()\n";
    let application = "start_command = \"python3 app.py\"\nhandshake = \"socket\"";
    let site = Site::start(&[("app.py", program)], ONDEMAND, "http", application);
    assert_eq!(site.get("x"), "no port");
    let [directory] = &directories(&site.temporary)[..] else {
        panic!("one directory");
    };
    assert_eq!(
        fs::metadata(directory).expect("the directory").mode() & 0o777,
        0o700
    );
}

#[test]
fn a_program_that_never_listens_is_told_what_is_missing() {
    let application = "start_command = \"node app.js\"\nstart_timeout = \"2s\"\n";
    let files = [("app.js", "setInterval(() => {}, 1000);")];
    let site = Site::start(&files, "pm = \"static\"\nmax_children = 1\n", "node", application);
    let line = site.daemon.wait_for("the application can't start");
    assert_contains(&line, "longer than 2 s");
    wait_until("the directory to go", || directories(&site.temporary).is_empty());
}
