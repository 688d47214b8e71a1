//! Uploads answered before they are read: the client receives the answer while it still sends.

use super::programs::Site;
use crate::support::prelude::*;

const ASGI: &str = r#"
async def app(scope, receive, send):
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"no\n"})
"#;
const WSGI: &str = r#"
def application(environ, start_response):
    start_response("401 Unauthorized", [("Content-Length", "3")])
    return [b"no\n"]
"#;
const NODE: &str = r#"
require('http').createServer((request, response) => { response.statusCode = 401; response.end('no\n'); })
  .listen(process.env.PORT);
"#;
const BODY_BYTES: usize = 2_000_000;
const LEFT: &str = "the client left in the middle of its request";

fn start(runtime: &str, pool: &str) -> Site {
    let (file, code, application) = match runtime {
        "asgi" => (
            "main.py",
            ASGI,
            "entry = \"main:app\"\ninterpreter = \"/usr/bin/python3\"\n",
        ),
        "wsgi" => ("wsgi.py", WSGI, "interpreter = \"/usr/bin/python3\"\n"),
        _ => ("app.js", NODE, "start_command = \"node app.js\"\n"),
    };
    let pool = format!("pm = \"static\"\nmax_children = 1\n{pool}");
    Site::start(&[(file, code)], &pool, runtime, application)
}

#[test]
fn a_refused_upload_by_http_is_answered() {
    each(["asgi", "node", "http"], |runtime| {
        let port = free_port();
        let site = start(runtime, &format!("http_listen = \"127.0.0.1:{port}\"\n"));
        for number in 0..20 {
            let mut client = TcpStream::connect(("127.0.0.1", port)).expect("connect");
            let head = format!(
                "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
            );
            client.write_all(head.as_bytes()).expect("the head");
            let sent = client.write_all(&vec![b'x'; BODY_BYTES]);
            assert!(sent.is_ok(), "{runtime}, request {number}: {sent:?}");
            let mut text = String::new();
            let read = client.read_to_string(&mut text);
            assert!(read.is_ok(), "{runtime}, request {number}: {read:?}");
            assert_starts(&text, "HTTP/1.1 401 ");
            assert_ends(&text, "no\n");
        }
        assert!(!site.daemon.log().contains(LEFT), "{}", site.daemon.log());
    });
}

#[test]
fn a_refused_upload_by_fastcgi_is_no_reason_to_complain() {
    for runtime in ["asgi", "node", "wsgi"] {
        let site = start(runtime, "");
        for keep in [false, true] {
            let length = BODY_BYTES.to_string();
            let params = Params::get(&site.daemon.dir, "", "")
                .with("REQUEST_METHOD", "POST")
                .with("CONTENT_LENGTH", &length);
            let pairs = params.pairs();
            let mut wire = Vec::new();
            let request = Request {
                params: &pairs,
                keep,
                ..Request::default()
            };
            request.encode_head(&mut wire);
            let mut client = site.daemon.client("app");
            client.send_raw(&wire).expect("send");
            let answer = client.answer().expect("answer");
            assert!(answer.ended && answer.text().contains("401"), "{answer:?}");
        }
        let mut cut = site.daemon.client("app");
        cut.send_raw(&[1, 1, 0, 1, 0, 8, 0, 0, 0, 1]).expect("send");
        cut.shut();
        let log = site.daemon.wait_for(LEFT);
        assert_eq!(log.matches(LEFT).count(), 1, "{runtime}: {log}");
    }
}
