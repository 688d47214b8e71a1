//! The files by which applications are known and started, in every kind of pool.

use super::look::Kind;

/// A file that an application is started from, relative to its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartupFile {
    /// The file.
    pub file: &'static str,
    /// What is started from it.
    pub kind: Kind,
    /// What it has to be accompanied by to show what an application is, where nothing else says it.
    pub proof: Proof,
}

/// What makes a file show what an application is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// That it is there.
    Itself,
    /// That it names a start script.
    StartScript,
    /// Nothing: a file of this name may be something else. The runtime has to be said.
    Runtime,
}

const fn file(file: &'static str, kind: Kind, proof: Proof) -> StartupFile {
    StartupFile { file, kind, proof }
}

/// All of them. Of those of one runtime, the first that is there is started; where no runtime is said, the first that is there
/// and shows what the application is. PHP comes before files of Node.js that its directories may hold for browsers.
pub const STARTUP_FILES: [StartupFile; 14] = [
    file("passenger_wsgi.py", Kind::Wsgi, Proof::Itself),
    file("wsgi.py", Kind::Wsgi, Proof::Itself),
    file("asgi.py", Kind::Asgi, Proof::Itself),
    file("config.ru", Kind::Rack, Proof::Itself),
    file("app.js", Kind::Node, Proof::Itself),
    file("package.json", Kind::Node, Proof::StartScript),
    file("index.php", Kind::Php, Proof::Itself),
    file("public/index.php", Kind::Php, Proof::Itself),
    file("server.js", Kind::Node, Proof::Itself),
    file("index.js", Kind::Node, Proof::Runtime),
    file("main.py", Kind::Asgi, Proof::Runtime),
    file("app.py", Kind::Asgi, Proof::Runtime),
    file("main.py", Kind::Wsgi, Proof::Runtime),
    file("app.py", Kind::Wsgi, Proof::Runtime),
];

/// The files of one runtime, in the order in which they are looked for.
pub fn files_of(kind: Kind) -> impl Iterator<Item = &'static str> {
    let own = STARTUP_FILES.iter().filter(move |one| one.kind == kind);
    own.map(|one| one.file)
}

/// What an `entry` shows by its name, where no runtime is said. `None`: it may be several things.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(files, ["passenger_wsgi.py", "wsgi.py", "main.py", "app.py"]);
    }
}
