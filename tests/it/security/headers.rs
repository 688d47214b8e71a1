//! Client headers that forge forkyard's own don't reach HTTP programs.

use crate::support::prelude::*;

const NODE: &str = "require('http').createServer((request, answer) => {\n\
    const raw = request.rawHeaders, lines = [];\n\
    for (let at = 0; at < raw.length; at += 2) lines.push(raw[at] + ': ' + raw[at + 1]);\n\
    answer.end(lines.join('\\n'));\n\
}).listen(process.env.PORT, '127.0.0.1');\n";
const PYTHON: &str = "import os\nfrom http.server import BaseHTTPRequestHandler, HTTPServer\n\
    class Handler(BaseHTTPRequestHandler):\n    def do_GET(self):\n        self.send_response(200)\n        \
    self.end_headers()\n        self.wfile.write('\\n'.join(f'{n}: {v}' for n, v in self.headers.items()).encode())\n\
    HTTPServer(('127.0.0.1', int(os.environ['PORT'])), Handler).serve_forever()\n";

const OWN: [(&str, Option<&str>); 18] = [
    ("X-Real-IP", Some("127.0.0.1")),
    ("X-Forwarded-Proto", Some("http")),
    ("X-Forwarded-Host", Some("localhost")),
    ("Host", Some("localhost")),
    ("X-Forwarded-Port", None),
    ("X-Forwarded-Server", None),
    ("X-Forwarded-Ssl", None),
    ("X-Forwarded-By", None),
    ("Content-Length", None),
    ("Content-Type", None),
    ("Connection", None),
    ("Expect", None),
    ("Keep-Alive", None),
    ("Proxy", None),
    ("Proxy-Connection", None),
    ("TE", None),
    ("Trailer", None),
    ("Upgrade", None),
];
const SPOKEN: [(&str, Option<&str>); 2] = [
    ("X-Forwarded-For", Some("127.0.0.1")),
    ("Transfer-Encoding", None),
];

fn spellings(header: &str) -> [String; 4] {
    let upper = header.to_ascii_uppercase();
    [
        upper.replace('-', "_"),
        upper.clone(),
        header.to_owned(),
        header.to_ascii_lowercase().replace('-', "_"),
    ]
    .map(|name| format!("HTTP_{name}"))
}

fn heard(client: &mut Client, params: &Params) -> BTreeMap<String, Vec<String>> {
    let answer = client.request(params, b"").expect("answer");
    assert_starts(&answer.text(), "Status: 200");
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in answer.body().lines() {
        let (name, value) = line.split_once(": ").expect("a header");
        headers
            .entry(name.to_ascii_lowercase().replace('_', "-"))
            .or_default()
            .push(value.to_owned());
    }
    headers
}

fn lie(connect: impl Fn() -> Client, honest: &Params) {
    let variants = OWN.iter().chain(&SPOKEN).flat_map(|(header, wanted)| {
        let is_taken = SPOKEN.iter().any(|(spoken, _)| spoken == header) || *header == "Host";
        let [own, ..] = spellings(header);
        let all = spellings(header)
            .into_iter()
            .filter(move |it| !is_taken || *it != own);
        all.map(move |spelling| (*header, spelling, *wanted))
    });
    for (header, spelling, wanted) in variants {
        let headers = heard(&mut connect(), &honest.clone().with(&spelling, "9.9.9.9"));
        let arrived = headers.get(&header.to_ascii_lowercase()).map(Vec::as_slice);
        let wanted = wanted.map(|value| vec![value.to_owned()]);
        assert_eq!(arrived, wanted.as_deref(), "{spelling}: {headers:?}");
        assert!(
            !headers.values().flatten().any(|value| value.contains("9.9.9.9")),
            "{spelling}: {headers:?}"
        );
    }
    let params = honest
        .clone()
        .with("HTTP_X_FORWARDED_FOR", "10.0.0.1")
        .with("HTTP_X_OWN", "mine");
    let headers = heard(&mut connect(), &params);
    assert_eq!(headers["x-forwarded-for"], ["10.0.0.1, 127.0.0.1"]);
    assert_eq!(headers["x-own"], ["mine"]);
    assert_eq!(headers["x-real-ip"], ["127.0.0.1"]);
}

fn place(root: &Path, file: &str, code: &str, own: &str) {
    fs::create_dir(root).expect("mkdir");
    fs::write(root.join(file), code).expect("write");
    if !own.is_empty() {
        fs::write(root.join("forkyard.toml"), own).expect("write");
    }
    if is_root() {
        for path in [root.to_owned(), root.join(file)] {
            chown(path, Some(33), Some(33)).expect("chown");
        }
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).expect("chmod");
}

#[test]
fn a_client_can_not_speak_for_forkyard_in_a_pool_of_one() {
    for (runtime, file, code, command) in [
        ("node", "app.js", NODE, ""),
        ("http", "serve.py", PYTHON, "start_command = \"python3 serve.py\""),
    ] {
        let daemon = Daemon::start(|dir| {
            place(&dir.join("app"), file, code, "");
            let application = application_in(runtime, dir.join("app"), command);
            pool(dir, "app", "pm = \"ondemand\"\nmax_children = 2", &application)
        });
        lie(|| daemon.client("app"), &Params::get(&daemon.dir, "a", ""));
    }
}

#[test]
fn nor_in_an_application_pool() {
    let daemon = Daemon::start(|dir| {
        let path = dir.display();
        fs::create_dir(dir.join("apps")).expect("apps");
        place(&dir.join("apps/node"), "app.js", NODE, "");
        let own = "runtime = \"http\"\nstart_command = \"python3 serve.py\"\n";
        place(&dir.join("apps/http"), "serve.py", PYTHON, own);
        format!(
            "[pool.sites]\nlisten = {{ address = \"{path}/sites.sock\", mode = \"0666\" }}\nrouting = \"application\"\n\
             [pool.sites.applications]\ndirectories = [\"{path}/apps\"]\nmin_uid = 1\n"
        )
    });
    for name in ["node", "http"] {
        let root = daemon.dir.join("apps").join(name);
        let params = Params::get(&root, "a", "").with("FORKYARD_APP_ROOT", &root.display().to_string());
        until("the application", || {
            let answer = daemon.client("sites").request(&params, b"").ok()?;
            answer.text().starts_with("Status: 200").then_some(())
        });
        lie(|| daemon.client("sites"), &params);
    }
}
