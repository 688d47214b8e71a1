//! The mount path, as an application of ASGI sees it.

use super::python::start_as;
use crate::support::prelude::*;

const STATIC: &str = "pm = \"static\"\nmax_children = 1\ncatch_workers_output = true\n";

const SCOPE: &str = r#"
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    body = f'{scope["root_path"]} {scope["path"]} {scope["raw_path"].decode()}'.encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"#;

#[test]
fn the_path_of_an_asgi_request_begins_with_its_root_path() {
    let requests = [
        ("", "", "/items/", "/items/?q", " /items/ /items/"),
        (
            "",
            "/shop",
            "/items/",
            "/shop/items/",
            "/shop /shop/items/ /shop/items/",
        ),
        ("", "/shop", "", "/shop", "/shop /shop /shop"),
        (
            "",
            "/shop",
            "/a b",
            "/shop/a%20b?x=y",
            "/shop /shop/a b /shop/a%20b",
        ),
        (
            "/shop",
            "",
            "/shop/items/",
            "/shop/items/",
            "/shop /shop/items/ /shop/items/",
        ),
        ("/shop", "", "/shopping", "/shopping", " /shopping /shopping"),
        (
            "/shop",
            "/shop",
            "/items/",
            "/shop/items/",
            "/shop /shop/items/ /shop/items/",
        ),
    ];
    for prefix in ["", "/shop"] {
        let settings = format!("{STATIC}env = {{ SCRIPT_NAME = \"{prefix}\" }}\n");
        let (daemon, root) = start_as("asgi", &[("main.py", SCOPE)], &settings, "");
        for (_, script, path, uri, expected) in requests.iter().filter(|row| row.0 == prefix) {
            let params = Params::get(root.path(), "x", "")
                .with("SCRIPT_NAME", script)
                .with("PATH_INFO", path)
                .with("REQUEST_URI", uri);
            let answer = daemon.ask("www", &params);
            assert_eq!(&answer.body(), expected, "{prefix:?} {script:?} {path:?}");
        }
    }
}

const STARLETTE: &str = r#"
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

async def items(request):
    return PlainTextResponse(f"{request.url.path} {request.url_for('items')}")

app = Starlette(routes=[Route("/items/", items, name="items"), Mount("/sub", routes=[Route("/items/", items)])])
"#;

#[test]
fn starlette_finds_its_routes_and_redirects_below_a_prefix() {
    let (daemon, root) = start_as("asgi", &[("main.py", STARLETTE)], STATIC, "");
    let request = |path: &str| {
        let params = Params::get(root.path(), "x", "")
            .with("SCRIPT_NAME", "/shop")
            .with("PATH_INFO", path)
            .with("REQUEST_URI", &format!("/shop{path}"));
        daemon.ask("www", &params)
    };
    let page = request("/items/").body();
    assert_starts(&page, "/shop/items/ ");
    assert_ends(&page, "/shop/items/");
    each(["/items", "/sub/items"], |path| {
        let answer = request(path).text();
        assert_contains(&answer, &format!("location: http://localhost/shop{path}/\r\n"));
    });
    assert!(request("/sub/items/").body().starts_with("/shop/sub/items/ "));
}
