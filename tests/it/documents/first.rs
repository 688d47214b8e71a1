//! The applications of the first five minutes are served.

use super::super::dev::stand::{Dev, owned};
use super::blocks::{self, Block, root};
use super::served::{settle_nginx, settle_toml};
use crate::support::prelude::*;

fn page(name: &str) -> PathBuf {
    root().join(format!("docs/start/{name}.md"))
}

fn file(name: &str) -> String {
    let text = read_file(page(name));
    let (_, rest) = text.split_once("<!-- file: /srv/app/").expect("a file");
    rest.split(" -->").next().unwrap_or(rest).to_owned()
}

fn text<'a>(blocks: &'a [Block], kind: &str) -> &'a str {
    let block = blocks.iter().find(|block| block.kind == kind);
    &block.unwrap_or_else(|| panic!("no {kind} block")).text
}

fn serve(name: &str, language: &str) {
    let blocks = blocks::read(&page(name));
    let dir = directory();
    let app = dir.path().join("app");
    fs::create_dir(&app).expect("app");
    fs::write(app.join(file(name)), text(&blocks, language)).expect("application");
    let there = |text: &str| text.replace("/srv/app", &app.display().to_string());
    write_down(&blocks, name, &app);
    develop(&app, text(&blocks, ""));
    let daemon = Daemon::start(|dir: &Path| settle_toml(&there(text(&blocks, "toml")), dir));
    let port = free_port();
    let site = settle_nginx(&there(text(&blocks, "nginx")), &daemon.dir, port);
    let _nginx = Nginx::start("return 404;", &site);
    let said = curl(&[&format!("http://127.0.0.1:{port}/")]);
    assert_eq!(said, text(&blocks, ""), "{name}\n{}", daemon.log());
    let log = daemon.log();
    assert_lacks(&log, "WARNING");
    assert_lacks(&log, "ERROR");
}

#[test]
fn the_first_sites_are_served() {
    let blocks = blocks::read(&page("sites"));
    let dir = directory();
    let sites = dir.path().canonicalize().expect("path").join("sites");
    for (file, language) in [("blog/public/index.php", "php"), ("shop/wsgi.py", "python")] {
        let path = sites.join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
        fs::write(path, text(&blocks, language)).expect("application");
    }
    let owned = Command::new("chown")
        .args(["-R", "www-data:"])
        .arg(&sites)
        .status();
    assert!(owned.expect("chown").success() || !is_root());
    let (pool, site) = init("sites", "sites", &sites);
    let own = |text: &str| text.replace(&sites.display().to_string(), "/srv/sites");
    assert_eq!(own(&pool), text(&blocks, "toml"));
    assert_eq!(own(&site), text(&blocks, "nginx"));
    let pool = pool.replace("max = 20", "max = 20\nmin_uid = 1");
    let daemon = Daemon::start(|dir: &Path| settle_toml(&pool, dir));
    let port = free_port();
    let _nginx = Nginx::start("return 404;", &settle_nginx(&site, &daemon.dir, port));
    let user = match is_root() {
        true => "www-data".to_owned(),
        false => std::env::var("USER").expect("USER"),
    };
    let answers = blocks.iter().filter(|block| block.kind.is_empty());
    for (name, answer) in ["blog", "shop"].into_iter().zip(answers) {
        let said = curl(&[&format!("http://127.0.0.1:{port}/{name}/")]);
        assert_eq!(said, answer.text.replace(name, &user), "{}", daemon.log());
    }
}

/// The application builds absolute URLs with the visitor's port, and accepts uploads larger than nginx's default.
#[test]
fn the_sites_that_are_written_pass_on_the_port_and_large_requests() {
    const WSGI: &str = "def application(environ, start_response):
    start_response('200 OK', [('Content-Type', 'text/plain')])
    sent = len(environ['wsgi.input'].read())
    return [('%s %s' % (environ['HTTP_HOST'], sent)).encode()]
";
    let dir = directory();
    let app = dir.path().canonicalize().expect("path").join("app");
    fs::create_dir(&app).expect("app");
    fs::write(app.join("wsgi.py"), WSGI).expect("application");
    let large = dir.path().join("large");
    fs::write(&large, vec![b'x'; 3 << 20]).expect("file");
    let (pool, site) = init("python", "app", &app);
    let daemon = Daemon::start(|dir: &Path| settle_toml(&pool, dir));
    let port = free_port();
    let _nginx = Nginx::start("return 404;", &settle_nginx(&site, &daemon.dir, port));
    let url = format!("http://127.0.0.1:{port}/");
    for (host, seen) in [
        ("shop.example:8443".to_owned(), "shop.example:8443"),
        ("shop.example".to_owned(), "shop.example"),
        (format!("127.0.0.1:{port}"), url[7..].trim_end_matches('/')),
    ] {
        let said = curl(&["-H", &format!("Host: {host}"), &url]);
        assert_eq!(said, format!("{seen} 0"), "{}", daemon.log());
    }
    let said = curl(&[
        "-H",
        "Host: x",
        "--data-binary",
        &format!("@{}", large.display()),
        &url,
    ]);
    assert_eq!(said, format!("x {}", 3 << 20));
}

const DEFAULT: &str = "server {\n    listen 80 default_server;\n    server_name _;\n}\n";

pub(super) fn init(kind: &str, name: &str, root: &Path) -> (String, String) {
    let (pool, site) = (root.with_file_name("pool.toml"), root.with_file_name("site.conf"));
    fs::write(root.with_file_name("default.conf"), DEFAULT).expect("a site");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    command.args(["init", kind, "--name", name, "--root"]).arg(root);
    command.arg("--output").arg(&pool).arg("--nginx").arg(&site);
    let output = command.output().expect("forkyard");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let written = |path: &Path| read_file(path);
    (written(&pool), written(&site))
}

#[test]
fn a_site_that_is_written_shadows_no_other_and_is_shadowed_by_none() {
    let dir = directory();
    let app = dir.path().canonicalize().expect("path").join("app");
    fs::create_dir(&app).expect("app");
    fs::write(app.join("wsgi.py"), "").expect("application");
    let give = |name: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
        command
            .args(["init", "python", "--name", name, "--root"])
            .arg(&app);
        command
            .arg("--output")
            .arg(app.with_file_name(format!("{name}.toml")));
        let site = app.with_file_name(format!("{name}.conf"));
        let output = command
            .arg("--nginx")
            .arg(&site)
            .args(more)
            .output()
            .expect("forkyard");
        let said = [output.stdout, output.stderr].concat();
        let written = fs::read_to_string(site).unwrap_or_default();
        (text_of(&said), written)
    };
    let place = |file: &str| app.with_file_name(file).display().to_string();
    let (said, written) = give("one", &[]);
    assert!(
        written.contains("listen 80 default_server;") && written.contains("server_name _;"),
        "{said}\n{written}"
    );
    let (said, written) = give("two", &[]);
    assert_contains(&written, "listen 80;");
    assert_contains(&written, "server_name localhost;");
    assert_contains(&said, &format!("go to the site at {}:1", place("one.conf")));
    let (said, written) = give("three", &[]);
    let taken = format!("localhost is the name of the site at {}:4", place("two.conf"));
    assert!(said.contains(&taken) && said.contains("--server-name"), "{said}");
    assert!(written.is_empty() && !app.with_file_name("three.toml").exists());
    let (said, written) = give("three", &["--server-name", "three.test"]);
    assert!(written.contains("server_name three.test;"), "{said}");
    fs::remove_file(place("one.conf")).expect("remove");
    fs::remove_file(place("two.conf")).expect("remove");
    fs::write(place("default.conf"), DEFAULT).expect("a site");
    let (said, _) = give("four", &[]);
    let remedy = format!(
        "at {0}:1; to have them here: rm {0}; service nginx restart",
        place("default.conf")
    );
    assert!(said.contains(&remedy), "{said}");
}

#[test]
fn a_site_that_no_server_could_have_is_refused_and_nothing_is_written() {
    let dir = directory();
    let long = "n".repeat(120);
    let rows: [(&str, &[&str], &str); 4] = [
        ("a$b", &[], "can't have $ in a path"),
        ("shop", &["--server-name", "x.test;"], "no list of host names"),
        ("shop", &["--server-name", " "], "no list of host names"),
        (&long, &[], "at most 64 characters"),
    ];
    each(rows, |(name, more, expected)| {
        let app = dir.path().join(name);
        make_folder(&app);
        write_file(app.join("wsgi.py"), "");
        let files = ["pool.toml", "site.conf"].map(|file| dir.path().join(file));
        let mut command = Command::new(env!("CARGO_BIN_EXE_forkyard"));
        command.args(["init", "python", "--root"]).arg(&app);
        command
            .arg("--output")
            .arg(&files[0])
            .arg("--nginx")
            .arg(&files[1]);
        let said = exited(Some(70), said_by(command.args(more)));
        assert_contains(&said, expected);
        assert!(!files.iter().any(|file| file.exists()));
    });
}

fn write_down(blocks: &[Block], kind: &str, app: &Path) {
    let own = |text: &str| text.replace(&app.display().to_string(), "/srv/app");
    let (pool, site) = init(kind, "app", app);
    assert_eq!(own(&pool), text(blocks, "toml"));
    assert_eq!(own(&site), text(blocks, "nginx"));
    let file = app.with_file_name("pool.toml");
    fs::remove_file(&file).expect("remove");
    let mut again = Command::new(env!("CARGO_BIN_EXE_forkyard"));
    again.args(["init", kind, "--name", "app", "--root"]).arg(app);
    again
        .arg("--output")
        .arg(&file)
        .arg("--nginx")
        .arg(app.with_file_name("site.conf"));
    let output = again.output().expect("forkyard");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("site.conf: File exists"),
        "{said}"
    );
    assert!(!file.exists(), "both are written or none");
}

fn develop(app: &Path, page: &str) {
    let dev = Dev::start(&owned(app));
    let said = dev.get("/");
    assert_eq!((said.status, said.body.as_str()), (200, page), "{}", dev.said());
}

tests! {
    fn the_first_php_page_is_served() => serve("php", "php");
    fn the_first_python_page_is_served() => serve("python", "python");
    fn the_first_ruby_page_is_served() => serve("ruby", "ruby");
    fn the_first_node_page_is_served() => serve("node", "js");
}
