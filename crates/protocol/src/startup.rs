//! Files that identify and start applications, in every kind of pool.

use super::runtimes::Kind;

/// A startup file, relative to the application's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartupFile {
    pub file: &'static str,
    /// The runtime that starts it.
    pub kind: Kind,
    /// The evidence that the file belongs to an application.
    pub proof: Proof,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    Itself,
    /// A start script in the file.
    StartScript,
    /// A `package.json` in the same directory.
    Package,
    /// The settings of a Django project, named in the file.
    Django,
    /// Source code that [`python_application`] recognizes.
    Source,
    /// No evidence: the runtime must be configured, because another runtime claims the file.
    Runtime,
}

const fn file(file: &'static str, kind: Kind, proof: Proof) -> StartupFile {
    StartupFile { file, kind, proof }
}

/// Every startup file. Within one runtime the first existing file is used; without a configured runtime, the first with
/// evidence. PHP precedes Node.js because PHP applications may contain Node.js files for browsers.
pub const STARTUP_FILES: [StartupFile; 18] = [
    file("passenger_wsgi.py", Kind::Wsgi, Proof::Itself),
    file("wsgi.py", Kind::Wsgi, Proof::Itself),
    file("asgi.py", Kind::Asgi, Proof::Itself),
    file("manage.py", Kind::Wsgi, Proof::Django),
    file("manage.py", Kind::Asgi, Proof::Runtime),
    file("config.ru", Kind::Rack, Proof::Itself),
    file("app.js", Kind::Node, Proof::Itself),
    file("package.json", Kind::Node, Proof::StartScript),
    file("index.php", Kind::Php, Proof::Itself),
    file("public/index.php", Kind::Php, Proof::Itself),
    file("server.js", Kind::Node, Proof::Itself),
    file("index.js", Kind::Node, Proof::Package),
    file("main.py", Kind::Asgi, Proof::Source),
    file("main.py", Kind::Wsgi, Proof::Source),
    file("app.py", Kind::Asgi, Proof::Source),
    file("app.py", Kind::Wsgi, Proof::Source),
    file("app/main.py", Kind::Asgi, Proof::Source),
    file("app/main.py", Kind::Wsgi, Proof::Source),
];

/// Calls that create an application in Python's frameworks, and the interface.
const MAKERS: [(&str, Kind); 12] = [
    ("FastAPI", Kind::Asgi),
    ("Starlette", Kind::Asgi),
    ("Quart", Kind::Asgi),
    ("Litestar", Kind::Asgi),
    ("ASGIApp", Kind::Asgi),
    ("get_asgi_application", Kind::Asgi),
    ("Flask", Kind::Wsgi),
    ("APIFlask", Kind::Wsgi),
    ("Bottle", Kind::Wsgi),
    ("WSGIApp", Kind::Wsgi),
    ("get_wsgi_application", Kind::Wsgi),
    ("make_wsgi_app", Kind::Wsgi),
];

/// Returns a runtime's files, in order of preference.
pub fn files_of(kind: Kind) -> impl Iterator<Item = &'static str> {
    let own = STARTUP_FILES.iter().filter(move |one| one.kind == kind);
    own.map(|one| one.file)
}

/// Derives the runtime from an `entry`. Returns `None` if the name is ambiguous.
pub fn kind_of_entry(entry: &str) -> Option<Kind> {
    let path = entry.split(':').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let known = STARTUP_FILES
        .iter()
        .find(|one| one.file == name && one.proof == Proof::Itself);
    if let Some(known) = known {
        return Some(known.kind);
    }
    // Modules as Django and others name them: shop.wsgi:application.
    let is_python =
        !path.contains('/') && !path.contains('.') || path.ends_with(".py") || entry.contains(':');
    let module = name.strip_suffix(".py").unwrap_or(name);
    match (
        module.rsplit('.').next(),
        name.rsplit_once('.').map(|(_, ending)| ending),
    ) {
        (Some("wsgi"), _) if is_python => Some(Kind::Wsgi),
        (Some("asgi"), _) if is_python => Some(Kind::Asgi),
        (_, Some("ru")) => Some(Kind::Rack),
        (_, Some("js" | "mjs" | "cjs")) => Some(Kind::Node),
        (_, Some("php")) => Some(Kind::Php),
        _ => None,
    }
}

/// The file of an entry's module, relative to the root: `shop/main.py` for `shop.main:app`.
pub fn module_file(entry: &str) -> Option<String> {
    let (module, _) = entry.split_once(':').unwrap_or((entry, ""));
    if let Some(path) = module.strip_suffix(".py") {
        return Some(format!("{path}.py"));
    }
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    module
        .split('.')
        .all(is_name)
        .then(|| format!("{}.py", module.replace('.', "/")))
}

/// Returns whether a `manage.py` names the settings of a Django project.
pub fn is_django(source: &str) -> bool {
    source.contains("DJANGO_SETTINGS_MODULE")
}

/// Guesses the interface of a Python source's `app` or `application` from its text: from a function's arguments or a
/// framework's constructor. The interpreter checks again after loading.
pub fn python_application(source: &str) -> Option<Kind> {
    let mut is_made = false;
    for line in source.lines() {
        match top_level(line) {
            Some(Top::Is(kind)) => return Some(kind),
            Some(Top::Made) => is_made = true,
            None => {}
        }
    }
    // A factory function may create it; accept the text if it names exactly one framework.
    let makes = |kind| move |line: &str| maker(line.split('#').next().unwrap_or_default()) == Some(kind);
    let [asgi, wsgi] = [Kind::Asgi, Kind::Wsgi].map(|kind| source.lines().any(makes(kind)));
    match (is_made, asgi, wsgi) {
        (true, true, false) => Some(Kind::Asgi),
        (true, false, true) => Some(Kind::Wsgi),
        _ => None,
    }
}

enum Top {
    Is(Kind),
    /// It defines the application, with an unknown interface.
    Made,
}

fn top_level(line: &str) -> Option<Top> {
    let is_application = |name: &str| ["app", "application"].contains(&name.trim());
    if let Some((name, _)) = line
        .strip_prefix("async def ")
        .and_then(|rest| rest.split_once('('))
    {
        return is_application(name).then_some(Top::Is(Kind::Asgi));
    }
    if let Some((name, arguments)) = line.strip_prefix("def ").and_then(|rest| rest.split_once('(')) {
        let arguments = arguments.split(')').next().unwrap_or_default();
        let is_pair = arguments.split(',').filter(|one| !one.trim().is_empty()).count() == 2;
        return is_application(name).then_some(if is_pair { Top::Is(Kind::Wsgi) } else { Top::Made });
    }
    let (name, value) = line.split_once('=')?;
    let name = name.split(':').next().unwrap_or_default();
    if name.starts_with(char::is_whitespace) || !is_application(name) || value.starts_with('=') {
        return None;
    }
    Some(maker(value).map_or(Top::Made, Top::Is))
}

/// The interface of the first framework constructor called in a text.
fn maker(text: &str) -> Option<Kind> {
    let (calls, _) = text.rsplit_once('(')?;
    calls.split('(').find_map(|before| {
        let called = before.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        MAKERS
            .iter()
            .find(|(name, _)| *name == called)
            .map(|(_, kind)| *kind)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_shows_what_its_application_is_or_nothing() {
        for (source, kind) in [
            ("from fastapi import FastAPI\napp = FastAPI()\n", Some(Kind::Asgi)),
            (
                "import fastapi\napp: fastapi.FastAPI = fastapi.FastAPI(title=\"x\")\n",
                Some(Kind::Asgi),
            ),
            ("app = FastAPI(\n    lifespan=lifespan,\n)\n", Some(Kind::Asgi)),
            (
                "from flask import Flask\napp = Flask(__name__)\n",
                Some(Kind::Wsgi),
            ),
            ("application = flask.Flask('shop')\n", Some(Kind::Wsgi)),
            ("application = Sentry(get_wsgi_application())\n", Some(Kind::Wsgi)),
            (
                "app = FastAPI()\napp.mount('/old', WSGIMiddleware(Flask(__name__)))\n",
                Some(Kind::Asgi),
            ),
            (
                "async def app(scope, receive, send):\n    pass\n",
                Some(Kind::Asgi),
            ),
            (
                "def application(environ, start_response):\n    pass\n",
                Some(Kind::Wsgi),
            ),
            (
                "def create():\n    app = Flask(__name__)\n    return app\n\napp = create()\n",
                Some(Kind::Wsgi),
            ),
            ("from shop import create_app\napp = create_app()\n", None),
            ("def main():\n    app = Flask(__name__)\n", None),
            ("api = FastAPI()\n", None),
            ("# app = Flask(__name__)\n", None),
            ("application == Flask(1)\n", None),
            ("app = (\u{1f980}(", None),
            ("", None),
        ] {
            assert_eq!(python_application(source), kind, "{source}");
        }
    }

    #[test]
    fn an_entry_names_a_file() {
        for (entry, file) in [
            ("main:app", Some("main.py")),
            ("shop.main:create()", Some("shop/main.py")),
            ("shop/main.py:app", Some("shop/main.py")),
            ("main", Some("main.py")),
            ("bin/serve", None),
            ("..", None),
            ("", None),
        ] {
            assert_eq!(module_file(entry).as_deref(), file, "{entry}");
        }
    }

    #[test]
    fn an_entry_shows_what_it_is_or_nothing() {
        for (entry, kind) in [
            ("passenger_wsgi.py", Some(Kind::Wsgi)),
            ("shop.wsgi:application", Some(Kind::Wsgi)),
            ("shop.asgi:application", Some(Kind::Asgi)),
            ("shop/asgi.py", Some(Kind::Asgi)),
            ("deploy/config.ru", Some(Kind::Rack)),
            ("api.ru", Some(Kind::Rack)),
            ("bin/www.mjs", Some(Kind::Node)),
            ("web/front.php", Some(Kind::Php)),
            ("main:app", None),
            ("app.py", None),
            ("bin/serve", None),
            ("", None),
        ] {
            assert_eq!(kind_of_entry(entry), kind, "{entry}");
        }
    }

    #[test]
    fn files_are_in_their_order() {
        let files: Vec<&str> = files_of(Kind::Wsgi).collect();
        assert_eq!(
            files,
            [
                "passenger_wsgi.py",
                "wsgi.py",
                "manage.py",
                "main.py",
                "app.py",
                "app/main.py"
            ]
        );
    }
}
