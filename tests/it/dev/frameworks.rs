//! Projects as the frameworks' generators and first pages write them need no file of forkyard's.

use super::stand::{Dev, owned, site};
use crate::support::prelude::*;

const FASTAPI: &str = "from fastapi import FastAPI\n\napp = FastAPI()\n\n\n@app.get(\"/\")\nasync def read_root():\n    \
                       return {\"Hello\": \"World\"}\n";
const FASTAPI_OF_FILES: &str = "from fastapi import FastAPI\nfrom .routers import items\n\napp = \
                                FastAPI()\napp.include_router(items.router)\n";
const ROUTER: &str = "from fastapi import APIRouter\n\nrouter = APIRouter()\n\n\n@router.get(\"/\")\nasync def read_items():\n    \
                      return {\"Hello\": \"World\"}\n";
const FLASK: &str = "from flask import Flask\n\napp = Flask(__name__)\n\n@app.route(\"/\")\ndef hello_world():\n    return \
                     {\"Hello\": \"World\"}\n";
const NODE: &str = "const { createServer } = require('node:http');\nconst server = createServer((req, res) => {\n  \
                    res.setHeader('Content-Type', 'application/json');\n  res.end('{\"Hello\":\"World\"}');\n});\n\
                    server.listen(3000, '127.0.0.1');\n";
const PACKAGE: &str = r#"{"name": "x", "version": "1.0.0", "main": "index.js",
"scripts": {"test": "echo \"Error: no test specified\" && exit 1"}}"#;

#[test]
fn first_programs_of_frameworks_are_served_as_they_are() {
    for (what, files) in [
        ("Python (ASGI), main.py", &[("main.py", FASTAPI)][..]),
        (
            "Python (ASGI), app/main.py",
            &[
                ("app/__init__.py", ""),
                ("app/main.py", FASTAPI_OF_FILES),
                ("app/routers/__init__.py", ""),
                ("app/routers/items.py", ROUTER),
            ],
        ),
        ("Python (WSGI), app.py", &[("app.py", FLASK)]),
        (
            "Node.js, index.js",
            &[("index.js", NODE), ("package.json", PACKAGE)],
        ),
    ] {
        let (_place, root) = site(files);
        let dev = Dev::start(&root);
        let page = dev.get("/");
        assert_eq!(page.status, 200, "{what}: {}", dev.said());
        assert_eq!(
            page.body.split_whitespace().collect::<String>(),
            "{\"Hello\":\"World\"}",
            "{what}"
        );
        assert!(dev.said().contains(what), "{what}: {}", dev.said());
    }
}

#[test]
fn a_new_project_of_django_is_served_with_the_styles_of_its_administration() {
    let (_place, root) = site(&[("requirements.txt", "django\n")]);
    let made = Command::new("/usr/bin/python3")
        .args(["-m", "django", "startproject", "mysite", "."])
        .current_dir(&root)
        .status();
    assert!(made.expect("python3-django").success());
    fs::remove_file(root.join("requirements.txt")).expect("remove");
    let dev = Dev::start(&owned(&root));
    let page = dev.get("/");
    assert!(
        page.status == 200 && page.body.contains("The install worked successfully"),
        "{}\n{}",
        page.body,
        dev.said()
    );
    assert_contains(&dev.said(), "Python (WSGI), manage.py");
    assert_eq!(dev.get("/admin/").status, 302);
    assert_contains(&dev.get("/static/admin/css/base.css").body, "DJANGO Admin styles");
}
