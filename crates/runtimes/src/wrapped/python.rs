//! Builds the Python wrapper: several modules in one script.

use forkyard_protocol::inspector::Kind;
use forkyard_protocol::startup::files_of;

const MODULES: [(&str, &str); 15] = [
    ("forkyard", include_str!("python/__init__.py")),
    ("forkyard.abi", include_str!("python/abi.py")),
    ("forkyard.asgi", include_str!("python/asgi.py")),
    ("forkyard.body", include_str!("python/body.py")),
    ("forkyard.children", include_str!("python/children.py")),
    ("forkyard.django", include_str!("python/django.py")),
    ("forkyard.finder", include_str!("python/finder.py")),
    ("forkyard.front", include_str!("python/front.py")),
    ("forkyard.jobs", include_str!("python/jobs.py")),
    ("forkyard.load", include_str!("python/load.py")),
    ("forkyard.preload", include_str!("python/preload.py")),
    ("forkyard.scope", include_str!("python/scope.py")),
    ("forkyard.slow", include_str!("python/slow.py")),
    ("forkyard.threads", include_str!("python/threads.py")),
    ("forkyard.wsgi", include_str!("python/wsgi.py")),
];
const EMPTY: &str = "USUAL_FILES = {}";
const BOOT: &str = include_str!("python/boot.py");

pub(super) fn script() -> String {
    // JSON strings, lists and objects are valid Python.
    let usual = [("wsgi", Kind::Wsgi), ("asgi", Kind::Asgi)];
    let usual = usual.map(|(name, kind)| (name.to_owned(), files_of(kind).collect::<Vec<_>>().into()));
    let usual = serde_json::Value::Object(serde_json::Map::from_iter(usual));
    let usual = format!("USUAL_FILES = {usual}");
    let filled = |source: &str| source.replace(EMPTY, &usual);
    let modules =
        serde_json::Map::from_iter(MODULES.map(|(name, source)| (name.to_owned(), filled(source).into())));
    format!("MODULES = {}\n{BOOT}", serde_json::Value::Object(modules))
}
