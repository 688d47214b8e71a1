//! A request's scheme, host, prefix and client in each runtime, behind one and two web servers.

use crate::support::prelude::*;

const PHP: &str = "<?php echo implode(' ', [($_SERVER['HTTPS'] ?? '') === 'on' ? 'https' : 'http', $_SERVER['HTTP_HOST'], \
                   '/shop', $_SERVER['REMOTE_ADDR'], $_SERVER['HTTP_X_FORWARDED_FOR'] ?? '-']);";
const WSGI: &str = "def application(environ, start_response):\n    start_response('200 OK', [])\n    \
                    names = ['wsgi.url_scheme', 'HTTP_HOST', 'SCRIPT_NAME', 'REMOTE_ADDR', 'HTTP_X_FORWARDED_FOR']\n    \
                    return [' '.join(environ.get(name, '-') for name in names).encode()]\n";
const ASGI: &str = "async def application(scope, receive, send):\n    assert scope['type'] == 'http'\n    \
                    headers = dict(scope['headers'])\n    \
                    seen = [scope['scheme'], headers[b'host'].decode(), scope['root_path'], scope['client'][0],\n            \
                    headers.get(b'x-forwarded-for', b'-').decode()]\n    \
                    await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
                    await send({'type': 'http.response.body', 'body': ' '.join(seen).encode()})\n";
const RACK: &str = "run ->(env) {\n  names = %w[rack.url_scheme HTTP_HOST SCRIPT_NAME REMOTE_ADDR HTTP_X_FORWARDED_FOR]\n  \
                    [200, {}, [names.map { |name| env[name] || '-' }.join(' ')]] }\n";
const NODE: &str = "require('http').createServer((request, response) => {\n  const it = request.headers;\n  \
                    const known = it['x-forwarded-for'].split(', ');\n  const last = known.pop();\n  \
                    if (last !== it['x-real-ip'] || it.host !== it['x-forwarded-host'] || request.url !== '/page') return response.end('they differ');\n  \
                    response.end([it['x-forwarded-proto'], it.host, it['x-forwarded-prefix'], last, \
                    known.join(', ') || '-'].join(' '));\n}).listen(process.env.PORT);\n";

const KINDS: [(&str, &str, &str); 6] = [
    ("php", "index.php", PHP),
    ("wsgi", "wsgi.py", WSGI),
    ("asgi", "asgi.py", ASGI),
    ("rack", "config.ru", RACK),
    ("node", "app.js", NODE),
    ("http", "serve.js", NODE),
];

#[test]
fn every_runtime_sees_the_same_scheme_host_prefix_and_client() {
    place_library();
    let daemon = Daemon::start(|dir| {
        let one = |(kind, file, text): &(&str, &str, &str)| {
            let root = dir.join(kind);
            fs::create_dir(&root).expect("mkdir");
            fs::write(root.join(file), text).expect("write");
            let root = root.display();
            let application = match *kind {
                "php" => format!("runtime = \"php\"\nversion = {:?}", env!("FORKYARD_PHP")),
                "http" => {
                    format!("runtime = \"http\"\nstart_command = \"node serve.js\"\nroot = \"{root}\"")
                }
                _ => format!("runtime = \"{kind}\"\nroot = \"{root}\""),
            };
            pool(dir, kind, "pm = \"static\"\nmax_children = 1\n", &application)
        };
        KINDS.iter().map(one).collect::<Vec<_>>().join("\n")
    });
    let cases = [
        (
            "http",
            "",
            "192.0.2.7",
            "",
            "http shop.test:8080 /shop 192.0.2.7 -",
        ),
        (
            "https",
            "on",
            "192.0.2.7",
            "",
            "https shop.test:8080 /shop 192.0.2.7 -",
        ),
        // TLS ends before nginx, and the operator has added `fastcgi_param HTTPS on`.
        (
            "http",
            "on",
            "192.0.2.7",
            "",
            "https shop.test:8080 /shop 192.0.2.7 -",
        ),
        // Behind two proxies: nginx doesn't trust the first one, and applications decide whom to trust.
        (
            "http",
            "on",
            "10.0.0.1",
            "192.0.2.7",
            "https shop.test:8080 /shop 10.0.0.1 192.0.2.7",
        ),
    ];
    each(KINDS, |(kind, file, _)| {
        for (scheme, https, client, forwarded, seen) in cases {
            let root = daemon.dir.join(kind);
            let mut params = Params::get(&root, file, "")
                .with("REQUEST_SCHEME", scheme)
                .with("HTTP_HOST", "shop.test:8080")
                .with("REMOTE_ADDR", client)
                .with("HTTP_X_FORWARDED_PREFIX", "/forged")
                .with("REQUEST_URI", "/shop/page");
            if kind != "php" {
                params = params.with("SCRIPT_NAME", "/shop").with("PATH_INFO", "/page");
            }
            for (name, value) in [("HTTPS", https), ("HTTP_X_FORWARDED_FOR", forwarded)] {
                if !value.is_empty() {
                    params = params.with(name, value);
                }
            }
            let answer = daemon.ask(kind, &params);
            assert_eq!(answer.body(), seen, "{scheme} {https} {client} {forwarded}");
        }
    });
}
