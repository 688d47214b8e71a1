//! Tests for files whose contents determine the kind.

use super::*;

#[test]
fn what_the_frameworks_make_is_known_by_its_text() {
    for (file, text, kind) in [
        (
            "main.py",
            "from fastapi import FastAPI\napp = FastAPI()\n",
            Kind::Asgi,
        ),
        (
            "app.py",
            "from flask import Flask\napp = Flask(__name__)\n",
            Kind::Wsgi,
        ),
        (
            "app/main.py",
            "from fastapi import FastAPI\napp = FastAPI()\n",
            Kind::Asgi,
        ),
        (
            "manage.py",
            "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'mysite.settings')\n",
            Kind::Wsgi,
        ),
    ] {
        let site = Site::new();
        site.file(file, text);
        assert_eq!(site.kind(), seen(kind, file));
        site.file("forkyard.toml", "entry = \"shop.asgi:application\"\n");
        assert_eq!(site.kind(), (Kind::Asgi, None), "{file}");
        site.file("forkyard.toml", "runtime = \"php\"\n");
        assert_eq!(site.kind(), (Kind::Php, None), "{file}");
    }
    let site = Site::new();
    site.file("manage.py", "print('manages')\n");
    site.file("main.py", "app = Flask(__name__)\n");
    site.file("app.py", "app = FastAPI()\n");
    assert_eq!(site.kind(), seen(Kind::Wsgi, "main.py"));
    let site = Site::new();
    nix::unistd::mkfifo(&site.root.join("main.py"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", site.root.join("app.py")).unwrap();
    assert!(site.refusal().contains("app.py alone does not show"));
}

#[test]
fn an_entry_shows_what_it_is_by_its_source() {
    let site = Site::new();
    site.file("shop/main.py", "api = 1\napp = FastAPI()\n");
    site.file("forkyard.toml", "entry = \"shop.main:app\"\n");
    assert_eq!(site.kind(), (Kind::Asgi, None));
    site.file("shop/main.py", "app = Flask(__name__)\n");
    assert_eq!(site.kind(), (Kind::Wsgi, None));
    site.file("forkyard.toml", "entry = \"shop/main.py\"\n");
    assert_eq!(site.kind(), seen(Kind::Wsgi, "shop/main.py"));
}

#[test]
fn index_js_beside_a_package_is_an_application() {
    let site = Site::new();
    site.file("index.js", "");
    assert!(site.refusal().contains("index.js alone does not show"));
    site.file("package.json", r#"{"scripts": {"test": "exit 1"}}"#);
    assert_eq!(site.kind(), seen(Kind::Node, "index.js"));
    site.file("forkyard.toml", "runtime = \"node\"\n");
    assert_eq!(site.kind(), seen(Kind::Node, "index.js"));
}
