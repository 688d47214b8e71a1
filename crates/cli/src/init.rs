//! `forkyard init`: writes a pool and an nginx site for an application.

mod servers;
mod site;

use self::servers::Place;
use super::php::{self, PhpError};
use super::{EXIT_SOFTWARE, connect};
use clap::{Args, ValueEnum};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The directory for pool files.
const POOLS: &str = "/etc/forkyard/pools";
/// nginx's site directories in distributions, with the suffix of their files.
const SITES: [(&str, &str); 2] = [("/etc/nginx/sites-enabled", ""), ("/etc/nginx/conf.d", ".conf")];
/// Names of the web server's user in distributions.
pub(super) const USERS: [&str; 4] = ["www-data", "nginx", "apache", "http"];

/// Subdirectories that can be a PHP project's document root. The first with an index.php is used.
const DOCUMENTS: [&str; 3] = ["public", "web", "htdocs"];

/// Common names of Django's directory for collected static files.
const COLLECTED: [&str; 2] = ["staticfiles", "static"];

const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = \"auto\"\nmax_request_queue_time = \"auto\"\n";
const DYNAMIC: &str = "pm = \"dynamic\"\nmax_children = \"auto\"\nstart_servers = 1\nmin_spare_servers = 1\n\
                       max_spare_servers = 3\nmax_request_queue_time = \"auto\"\n";
const STATIC: &str = "pm = \"static\"\nmax_children = 2\nmax_request_queue_time = \"auto\"\n";

/// What the application is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// Scripts below a directory
    Php,
    /// A WSGI application: Django, Flask, or a file wsgi.py
    Python,
    /// An ASGI application: FastAPI, Starlette
    Asgi,
    /// A Rack application, with a file config.ru: Rails, Sinatra
    Ruby,
    /// A program for Node.js
    Node,
    /// Many applications of any kind in one directory, each as its owner
    Sites,
}

/// What is written, and where.
#[derive(Debug, Args)]
pub(super) struct Init {
    /// The application's runtime
    kind: Kind,
    /// The pool's name. Default: the directory's name
    #[arg(long)]
    name: Option<String>,
    /// The application's directory. Default: this one
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// The user of the workers. Default: the web server's
    #[arg(long)]
    user: Option<String>,
    /// The pool's file. Default: /etc/forkyard/pools/NAME.toml
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The file for nginx. Default: where nginx has its sites; if there is no nginx, none is written
    #[arg(long, value_name = "FILE")]
    nginx: Option<PathBuf>,
    /// The name of the site. Default: every name if nginx has no other site, otherwise localhost
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Site {
    kind: Kind,
    name: String,
    root: String,
    /// The document root, relative to the root.
    documents: String,
    user: String,
    web_user: String,
    php: String,
    /// The site's name; without one, it serves requests that match no other site.
    server_name: Option<String>,
    has: Has,
    /// The root is a link to a release.
    has_releases: bool,
}

/// Directories of static files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Has {
    public: bool,
    /// The directory of `manage.py collectstatic`.
    collected: Option<&'static str>,
}

#[derive(Debug, thiserror::Error)]
enum InitError {
    #[error(
        "{name} is the name of the site at {place}, which would get all requests; give another with --server-name"
    )]
    TakenName { name: String, place: Place },
    #[error("{path}: {1}; name the application's directory with --root", path = .0.display())]
    Directory(PathBuf, io::Error),
    #[error("the directory's name is not UTF-8")]
    NotUtf8,
    #[error("there is no user of a web server; install nginx, or name one with --user")]
    NoWebUser,
    #[error(
        "give the pool a name of letters, digits, - and _ with --name, of at most {LONGEST_NAME} characters"
    )]
    NoName,
    #[error(
        "nginx can't have $ in a path, as in {0:?}; give the directory another name, or make a link to it"
    )]
    Dollar(String),
    #[error("{0:?} is no list of host names; write --server-name \"example.com www.example.com\"")]
    ServerName(String),
    #[error("{} has none of {signs}: {what} begins with one; go to its directory, or name it with --root", root.display())]
    NoApplication {
        root: PathBuf,
        signs: String,
        what: &'static str,
    },
    #[error("{path}: {1}; {remedy}", path = .0.display(), remedy = remedy(.1))]
    Write(PathBuf, io::Error),
    #[error(transparent)]
    Php(#[from] PhpError),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AlreadyExists => "remove it, or give another name with --name",
        ErrorKind::NotFound => "make its directory, or name another file",
        _ => "give this command as root, or name another file",
    }
}

/// The socket's path has 107 bytes at most.
const LONGEST_NAME: usize = 64;

/// Writes the files. Existing files stay unchanged.
pub(super) fn run(arguments: &Init) -> ExitCode {
    match write(arguments) {
        Ok(said) => {
            print!("{said}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("forkyard: {problem}");
            ExitCode::from(EXIT_SOFTWARE)
        }
    }
}

fn write(arguments: &Init) -> Result<String, InitError> {
    let mut site = site(arguments)?;
    let pool = arguments.output.clone();
    let pool = pool.unwrap_or_else(|| Path::new(POOLS).join(format!("{}.toml", site.name)));
    let of_nginx = arguments.nginx.clone().or_else(|| {
        let mut there = SITES
            .iter()
            .filter(|(directory, _)| Path::new(directory).is_dir());
        there
            .next()
            .map(|(directory, ending)| Path::new(directory).join(format!("{}{ending}", site.name)))
    });
    let mut note = String::new();
    if let Some(path) = &of_nginx {
        site.check_for_nginx()?;
        let others = servers::beside(path);
        if site.server_name.is_none()
            && let Some(first) = servers::default(&others)
        {
            note = remark(first);
            site.server_name = Some("localhost".to_owned());
        }
        for name in site.server_name.iter().flat_map(|names| names.split_whitespace()) {
            if let Some(place) = servers::named(&others, name) {
                let (name, place) = (name.to_owned(), place.clone());
                return Err(InitError::TakenName { name, place });
            }
        }
    }
    put(&pool, &site.pool())?;
    let mut said = format!("{}: pool {}\n", pool.display(), site.name);
    match of_nginx {
        Some(path) => {
            put(&path, &site.nginx()).inspect_err(|_| {
                // Write both files or none, so that the command can be repeated.
                let _ = fs::remove_file(&pool);
            })?;
            let name = site.server_name.as_deref().unwrap_or("for every name");
            said += &format!("{}: site {name}\n", path.display());
        }
        None => said += "there is no nginx: docs/howto/web-servers.md has what other web servers need\n",
    }
    if site.has_releases {
        let (name, root) = (&site.name, &site.root);
        said += &format!(
            "{root} is a link to a release: forkyard deploy {name} DIRECTORY gives the pool another\n"
        );
    }
    said += "next: forkyard check, then service forkyard start or, if it runs, forkyard reload; and service nginx restart\n";
    Ok(said + &note)
}

fn remark(other: &Place) -> String {
    let file = other.file.display();
    let remedy = match other.file.file_stem() {
        Some(stem) if stem == "default" => format!("to have them here: rm {file}; service nginx restart"),
        _ => "to have its own name here: --server-name".to_owned(),
    };
    format!("requests for other names than localhost go to the site at {other}; {remedy}\n")
}

fn site(arguments: &Init) -> Result<Site, InitError> {
    let given = arguments.root.clone().unwrap_or_else(working_directory);
    let real = fs::canonicalize(&given).map_err(|error| InitError::Directory(given.clone(), error))?;
    let link = match arguments.kind {
        Kind::Sites => None,
        Kind::Php => link(&given).or_else(|| link_above(&given)),
        _ => link(&given),
    };
    let has_releases = link.is_some();
    let root = link.unwrap_or(real);
    let web_user = connect::web_user().or_else(|| arguments.user.clone());
    let web_user = web_user.ok_or(InitError::NoWebUser)?;
    // The link has a name such as `current`.
    let named = match has_releases {
        true => root.parent(),
        false => Some(root.as_path()),
    };
    let of_directory = named.and_then(|path| path.file_name()?.to_str()).map(usable);
    let name = arguments
        .name
        .clone()
        .or(of_directory)
        .filter(|name| *name == usable(name) && (1..=LONGEST_NAME).contains(&name.len()));
    require_application(arguments.kind, &root)?;
    Ok(Site {
        kind: arguments.kind,
        name: name.ok_or(InitError::NoName)?,
        documents: match arguments.kind {
            Kind::Php => documents_of(&root),
            _ => String::new(),
        },
        has: has(arguments.kind, &root),
        root: root.to_str().ok_or(InitError::NotUtf8)?.to_owned(),
        user: arguments.user.clone().unwrap_or_else(|| web_user.clone()),
        web_user,
        php: match arguments.kind {
            Kind::Php => php::newest_that_runs()?,
            _ => String::new(),
        },
        server_name: arguments.server_name.clone(),
        has_releases,
    })
}

/// Returns the working directory as the shell knows it, with the link that led there.
fn working_directory() -> PathBuf {
    let here = PathBuf::from(".");
    let named = std::env::var_os("PWD").map(PathBuf::from);
    let is_here = |path: &PathBuf| path.is_absolute() && path.canonicalize().ok() == here.canonicalize().ok();
    named.filter(is_here).unwrap_or(here)
}

/// Returns the path of a link with its directory's links resolved; `None` if the path is no link.
fn link(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let path: PathBuf = path.components().collect();
    if !fs::symlink_metadata(&path).ok()?.is_symlink() {
        return None;
    }
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

/// Returns the path of a link to a PHP project, from its document root.
fn link_above(documents: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(documents).ok()?;
    let above = link(path.parent()?)?;
    let expected = documents_of(&above);
    (path.file_name()? == expected.strip_prefix('/')?).then_some(above)
}

/// Returns the directories that the web server serves itself.
fn has(kind: Kind, root: &Path) -> Has {
    let is_dir = |name: &&&str| root.join(name).is_dir();
    let python = matches!(kind, Kind::Python | Kind::Asgi);
    let found = COLLECTED.iter().find(is_dir).copied();
    let default = root.join("manage.py").is_file().then_some(COLLECTED[1]);
    Has {
        public: !matches!(kind, Kind::Php | Kind::Sites) && root.join("public").is_dir(),
        collected: python.then_some(found.or(default)).flatten(),
    }
}

/// Returns a PHP project's document root, relative to `root`.
fn documents_of(root: &Path) -> String {
    let has_front = |name: &&&str| root.join(name).join("index.php").is_file();
    let found = DOCUMENTS.iter().find(has_front);
    found.map_or_else(String::new, |name| format!("/{name}"))
}

/// Removes characters that file and pool names can't contain.
fn usable(name: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    name.chars().filter(is_plain).collect()
}

/// Checks that the directory contains an application of this kind.
fn require_application(kind: Kind, root: &Path) -> Result<(), InitError> {
    let has = |name: &str| root.join(name).exists();
    let (signs, what): (&[&str], _) = match kind {
        Kind::Php | Kind::Sites => return Ok(()),
        Kind::Python => (
            &["manage.py", "wsgi.py", "app.py", "main.py", "passenger_wsgi.py"],
            "a WSGI application",
        ),
        Kind::Asgi => (
            &["manage.py", "asgi.py", "app.py", "main.py"],
            "an ASGI application",
        ),
        Kind::Ruby => (&["config.ru"], "a Rack application"),
        Kind::Node => (
            &["package.json", "app.js", "server.js", "index.js"],
            "a program for Node.js",
        ),
    };
    if signs.iter().any(|name| has(name)) {
        return Ok(());
    }
    Err(InitError::NoApplication {
        root: root.to_owned(),
        signs: signs.join(", "),
        what,
    })
}

fn put(path: &Path, text: &str) -> Result<(), InitError> {
    let done = File::create_new(path).and_then(|mut file| file.write_all(text.as_bytes()));
    done.map_err(|error| InitError::Write(path.to_owned(), error))
}

impl Site {
    /// Checks the root and the host names for characters that nginx can't quote.
    fn check_for_nginx(&self) -> Result<(), InitError> {
        if self.root.contains('$') {
            return Err(InitError::Dollar(self.root.clone()));
        }
        let is_odd = |c: char| c.is_control() || ";{}\"'#\\".contains(c);
        match &self.server_name {
            Some(name) if name.contains(is_odd) || name.trim().is_empty() => {
                Err(InitError::ServerName(name.clone()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn socket(&self) -> String {
        format!("/run/forkyard-{}.sock", self.name)
    }

    /// Returns the HTTP socket's path, for WebSocket.
    fn http_socket(&self) -> String {
        format!("/run/forkyard-{}-http.sock", self.name)
    }

    fn speaks_http(&self) -> bool {
        matches!(self.kind, Kind::Asgi | Kind::Node)
    }

    /// Returns the text of the pool's file.
    fn pool(&self) -> String {
        let Site {
            name,
            user,
            web_user,
            root,
            php,
            ..
        } = self;
        let socket = self.socket();
        let mut listen =
            format!("listen = {{ address = \"{socket}\", owner = \"{web_user}\", group = \"{web_user}\" }}");
        if self.speaks_http() {
            listen += &format!("\nhttp_listen = \"{}\"", self.http_socket());
        }
        // Only these two characters need an escape in a TOML string.
        let root = site::quoted(root);
        if self.kind == Kind::Sites {
            return format!(
                "# Every application below the directory, each as the user that it belongs to.\n[pool.{name}]\n{listen}\n\
                 routing = \"application\"\n\n[pool.{name}.applications]\ndirectories = [\"{root}\"]\nmax = 20\n"
            );
        }
        // An event loop may run periodic tasks, which need permanent workers. Python and Ruby load slowly.
        let (manager, application) = match self.kind {
            Kind::Php => (
                ONDEMAND,
                format!(
                    "runtime = \"php\"\nversion = \"{php}\"\nscript_root = \"{root}{}\"",
                    self.documents
                ),
            ),
            Kind::Asgi => (STATIC, format!("runtime = \"asgi\"\nroot = \"{root}\"")),
            Kind::Ruby => (DYNAMIC, format!("runtime = \"rack\"\nroot = \"{root}\"")),
            Kind::Node => (STATIC, format!("runtime = \"node\"\nroot = \"{root}\"")),
            Kind::Python | Kind::Sites => (DYNAMIC, format!("runtime = \"wsgi\"\nroot = \"{root}\"")),
        };
        let release = match self.has_releases {
            true => format!("release = \"{root}\"\n"),
            false => String::new(),
        };
        format!(
            "[pool.{name}]\n{listen}\nuser = \"{user}\"\n{manager}{release}\n\
             [pool.{name}.application]\n{application}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forkyard_config::{self as config, Host};

    #[test]
    fn every_kind_is_a_pool_that_is_right() {
        for kind in Kind::value_variants() {
            let site = Site {
                kind: *kind,
                name: "shop".to_owned(),
                root: "/usr".to_owned(),
                documents: String::new(),
                user: "www-data".to_owned(),
                web_user: "www-data".to_owned(),
                php: "8.2".to_owned(),
                server_name: None,
                has: Has::default(),
                has_releases: false,
            };
            let text = site.pool();
            let loaded = config::parse(&text, Path::new("shop.toml"), &Host::default());
            // A program missing in /usr is not an error of the text.
            if let Err(errors) = loaded {
                let said = errors.to_string();
                assert!(
                    said.contains("package.json") || said.contains("no user \"forkyard\""),
                    "{kind:?}: {said}\n{text}"
                );
            }
            assert!(
                site.nginx()
                    .contains("fastcgi_pass unix:/run/forkyard-shop.sock;")
            );
        }
    }

    #[test]
    fn only_a_link_has_releases() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("shop/releases/1")).unwrap();
        std::os::unix::fs::symlink("releases/1", base.join("shop/current")).unwrap();
        std::os::unix::fs::symlink("shop", base.join("there")).unwrap();
        let current = Some(base.join("shop/current"));
        for (path, expected) in [
            ("shop/current", &current),
            ("shop/current/", &current),
            ("there/current", &current),
            ("shop/releases/1", &None),
            ("there/releases", &None),
            ("missing", &None),
        ] {
            assert_eq!(&link(&base.join(path)), expected, "{path}");
        }
        for name in ["public", "other"] {
            fs::create_dir(base.join("shop/current").join(name)).unwrap();
        }
        fs::write(base.join("shop/current/public/index.php"), "").unwrap();
        for (path, expected) in [
            ("shop/current/public", &current),
            ("shop/current/public/", &current),
            ("shop/current/other", &None),
            ("shop/releases/1/public", &None),
        ] {
            assert_eq!(&link_above(&base.join(path)), expected, "{path}");
        }
    }

    #[test]
    fn names_are_of_plain_letters() {
        assert_eq!(usable("my shop.example_1-2"), "myshopexample_1-2");
    }
}
