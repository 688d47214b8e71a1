//! Every fault of the page.

use super::Page;
use super::bench::{Bench, NAMED, STATIC};
use crate::support::prelude::*;
use std::os::unix::fs::symlink;

const NO_FILE: &str = "(2: No such file or directory) while connecting to upstream";
const NO_PERMISSION: &str = "(13: Permission denied) while connecting to upstream";
const REFUSED: &str = "(111: Connection refused) while connecting to upstream";
const TOO_LATE: &str = "504 Gateway Time-out";
const TOO_LARGE: &str = "413 Request Entity Too Large";
const NOT_FOUND: &str = "File not found.";
const FULL: &str = "server reached pm.max_children setting";
const ANOTHER: &str = "Another FPM instance seems to already listen on";

const WAITING: &str =
    "while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(10000); } echo 'served';";

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

fn index(bench: &Bench) -> String {
    bench.ask("/index.php")
}

fn refused(command: &mut Command) -> String {
    let output = command.output().expect("a program");
    assert!(!output.status.success(), "{output:?}");
    text_of(&[output.stdout, output.stderr].concat())
}

fn connections(page: &mut Page) {
    let mut bench = Bench::new();
    page.cure(NO_FILE, "service forkyard start");
    page.drive(
        (NO_FILE, &["is the daemon running"]),
        &mut bench,
        index,
        (Bench::start, "/index.php"),
    );
    let reload = page.cure(NO_FILE, "forkyard reload");
    fs::remove_file(bench.dir.join("www.sock")).expect("the socket");
    let cure = |bench: &mut Bench| drop(bench.run(&reload));
    page.drive(
        (NO_FILE, &["its file is gone"]),
        &mut bench,
        index,
        (cure, "/index.php"),
    );
    bench.site(&format!("{NAMED} fastcgi_pass unix:/run/php/lost.sock;"));
    let cure = |bench: &mut Bench| bench.site(NAMED);
    let causes = ["pool www on /run/forkyard-www.sock"];
    page.drive((NO_FILE, &causes), &mut bench, index, (cure, "/index.php"));

    let socket = bench.dir.join("www.sock");
    chown(&socket, Some(0), Some(0)).expect("chown");
    set_mode(&socket, 0o600);
    let cure = |bench: &mut Bench| drop(bench.run(&reload));
    let causes = ["no user except root can connect"];
    page.drive((NO_PERMISSION, &causes), &mut bench, index, (cure, "/index.php"));
    let owner = page.cure(NO_PERMISSION, "owner = \"www-data\"");
    let listen = format!("address = \"{}\"", socket.display());
    bench.configure(&format!("listen = {{ {listen} }}\n{STATIC}"), "");
    bench.reload();
    let cure = |bench: &mut Bench| {
        bench.configure(&format!("listen = {{ {listen}, {owner} }}\n{STATIC}"), "");
        bench.reload();
    };
    let causes = ["the socket is root's with mode 0660"];
    page.drive((NO_PERMISSION, &causes), &mut bench, index, (cure, "/index.php"));

    let daemon = bench.daemon.as_mut().expect("a daemon");
    daemon.signal(Signal::SIGKILL);
    daemon.wait();
    page.cure(REFUSED, "service forkyard start");
    page.drive(
        (REFUSED, &["is the daemon running"]),
        &mut bench,
        index,
        (Bench::start, "/index.php"),
    );
}

fn answers_of_nginx(page: &mut Page) {
    let mut bench = Bench::started();
    bench.script("crash.php", "posix_kill(getmypid(), 9); sleep(60);");
    let cure = |bench: &mut Bench| bench.script("crash.php", "echo 'served';");
    page.drive(
        (
            "upstream prematurely closed connection",
            &["signal SIGKILL", "exited on signal", "was serving"],
        ),
        &mut bench,
        |bench| bench.ask("/crash.php"),
        (cure, "/crash.php"),
    );
    let large = "upstream sent too big header";
    bench.script(
        "headers.php",
        "for ($i = 0; $i < 99; $i++) { header(\"X-$i: \" . str_repeat('a', 100)); } echo 'served';",
    );
    let (size, count) = (
        page.cure(large, "fastcgi_buffer_size 32k;"),
        page.cure(large, "fastcgi_buffers 16 32k;"),
    );
    let cure = |bench: &mut Bench| bench.site(&[NAMED, &size, &count].join("\n"));
    let fault = |bench: &Bench| bench.ask("/headers.php");
    page.drive((large, &[]), &mut bench, fault, (cure, "/headers.php"));

    bench.site(&format!("{NAMED} client_max_body_size 1m;"));
    let limit = page.cure(TOO_LARGE, "client_max_body_size 200m;");
    let cure = |bench: &mut Bench| {
        bench.site(&format!("{NAMED} {limit}"));
        bench.script("post.php", "echo isset($_POST['a']) ? 'served' : 'empty';");
        assert_eq!(bench.post("/post.php", 2 << 20), "served");
    };
    let fault = |bench: &Bench| bench.post("/post.php", 2 << 20);
    page.drive((TOO_LARGE, &[]), &mut bench, fault, (cure, "/index.php"));
    let form = "exceeds the limit of";
    bench.configure(STATIC, "php_admin_value = { post_max_size = \"1M\" }\n");
    bench.reload();
    let sizes = page.cure(
        form,
        "php_admin_value = { post_max_size = \"64M\", upload_max_filesize = \"64M\" }",
    );
    let cure = |bench: &mut Bench| {
        bench.configure(STATIC, &sizes);
        bench.reload();
        assert_eq!(bench.post("/post.php", 2 << 20), "served");
    };
    let causes = ["php.ini", "post_max_size"];
    page.drive((form, &causes), &mut bench, fault, (cure, "/index.php"));
}

fn time(page: &mut Page) {
    let mut bench = Bench::started();
    let slow = |bench: &Bench| bench.ask("/wait.php");
    let go = |bench: &mut Bench| drop(fs::write(bench.dir.join("html/go"), ""));
    bench.script("wait.php", WAITING);
    bench.site(&format!("{NAMED} fastcgi_read_timeout 1s;"));
    let causes = ["Running", "connections wait"];
    page.drive((TOO_LATE, &causes), &mut bench, slow, (go, "/wait.php"));

    let ended = "The application did not answer in time.";
    bench.script("long.php", "usleep(1500000); echo 'served';");
    bench.site(NAMED);
    bench.configure(&format!("{STATIC}request_terminate_timeout = \"1s\"\n"), "");
    bench.reload();
    let key = page.cure(ended, "request_terminate_timeout");
    let cure = |bench: &mut Bench| {
        bench.configure(&format!("{STATIC}{key} = \"60s\"\n"), "");
        bench.reload();
    };
    let causes = ["terminated 1", "execution timed out"];
    let fault = |bench: &Bench| bench.ask("/long.php");
    page.drive((ended, &causes), &mut bench, fault, (cure, "/long.php"));

    fs::remove_file(bench.dir.join("html/go")).expect("go");
    bench.site(&format!("{NAMED} fastcgi_read_timeout 1s;"));
    let key = page.cure(FULL, "max_children");
    let dynamic =
        "pm = \"dynamic\"\nstart_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n".to_owned();
    bench.configure(&format!("{dynamic}{key} = 1\n"), "");
    bench.reload();
    let cure = |bench: &mut Bench| {
        bench.configure(&format!("{dynamic}{key} = 4\n"), "");
        bench.reload();
    };
    let causes = ["max_children reached 1 times", "connections wait"];
    page.drive((FULL, &causes), &mut bench, slow, (cure, "/index.php"));
    go(&mut bench);
}

fn scripts(page: &mut Page) {
    let mut bench = Bench::started();
    let cure = |bench: &mut Bench| bench.script("lost.php", "echo 'served';");
    let fault = |bench: &Bench| bench.ask("/lost.php");
    page.drive(
        (NOT_FOUND, &["does not exist"]),
        &mut bench,
        fault,
        (cure, "/lost.php"),
    );
    let closed = bench.dir.join("html/closed");
    fs::create_dir(&closed).expect("mkdir");
    bench.script("closed/a.php", "echo 'served';");
    set_mode(&closed, 0o700);
    let cure = |bench: &mut Bench| set_mode(&bench.dir.join("html/closed"), 0o701);
    let fault = |bench: &Bench| bench.ask("/closed/a.php");
    let causes = ["the pool's user can't search the directory"];
    page.drive((NOT_FOUND, &causes), &mut bench, fault, (cure, "/closed/a.php"));
    bench.site(&format!("root {}/outside;\n{NAMED}", bench.dir.display()));
    let cure = |bench: &mut Bench| bench.site(NAMED);
    let causes = ["does not exist for this pool"];
    page.drive((NOT_FOUND, &causes), &mut bench, index, (cure, "/index.php"));
    bench.site("");
    let named = page.cure(NOT_FOUND, NAMED);
    let cure = |bench: &mut Bench| bench.site(&named);
    let causes = ["let it send SCRIPT_FILENAME"];
    page.drive((NOT_FOUND, &causes), &mut bench, index, (cure, "/index.php"));

    bench.script("page.html", "echo 'served';");
    let cure = |bench: &mut Bench| {
        bench.configure(STATIC, "limit_extensions = [\".php\", \".html\"]\n");
        bench.reload();
    };
    let fault = |bench: &Bench| bench.ask("/page.html");
    let denied = "Access denied.";
    page.cure(denied, "limit_extensions");
    page.drive(
        (denied, &["has an ending that is not run"]),
        &mut bench,
        fault,
        (cure, "/page.html"),
    );
    set_mode(&bench.dir.join("html/index.php"), 0o600);
    let cure = |bench: &mut Bench| set_mode(&bench.dir.join("html/index.php"), 0o604);
    let causes = ["can't be read by the pool's user"];
    page.drive((denied, &causes), &mut bench, index, (cure, "/index.php"));
    bench.configure(STATIC, "php_admin_value = { open_basedir = \"/srv/other\" }\n");
    bench.reload();
    let cure = |bench: &mut Bench| {
        let setting = format!(
            "php_admin_value = {{ open_basedir = \"/srv/other:{}/html\" }}\n",
            bench.dir.display()
        );
        bench.configure(STATIC, &setting);
        bench.reload();
    };
    let causes = ["lies outside application.root, application.script_root or open_basedir"];
    let outside = "No input file specified.";
    page.drive((outside, &causes), &mut bench, index, (cure, "/index.php"));
    let folder = bench.dir.join("html/folder.php");
    fs::create_dir(&folder).expect("mkdir");
    let cure = |bench: &mut Bench| {
        fs::remove_dir(&folder).expect("rmdir");
        bench.script("folder.php", "echo 'served';");
    };
    let fault = |bench: &Bench| bench.ask("/folder.php");
    page.drive(
        (outside, &["does not exist"]),
        &mut bench,
        fault,
        (cure, "/folder.php"),
    );
    leads_out(page, &mut bench);
    bench.script("white.php", "lost_function();");
    let cure = |bench: &mut Bench| {
        bench.configure(STATIC, "php_flag = { display_errors = true }");
        bench.reload();
        assert!(bench.ask("/white.php").contains("Fatal error"));
        bench.script("white.php", "echo 'served';");
    };
    let fault = |bench: &Bench| bench.ask("/white.php");
    let white = "PHP Fatal error:";
    page.cure(white, "php_flag = { display_errors = true }");
    let causes = ["PHP message:", "Uncaught"];
    page.drive((white, &causes), &mut bench, fault, (cure, "/white.php"));
}

/// A link in a release to a file elsewhere.
fn leads_out(page: &mut Page, bench: &mut Bench) {
    let (shared, link) = (bench.dir.join("shared"), bench.dir.join("current"));
    fs::create_dir(&shared).expect("mkdir");
    fs::write(shared.join("leads.php"), "<?php echo 'served';").expect("a script");
    symlink(shared.join("leads.php"), bench.dir.join("html/leads.php")).expect("a link");
    symlink("html", &link).expect("a link");
    let released = format!("{STATIC}release = {:?}\n", link.display().to_string());
    bench.configure(&released, "");
    bench.reload();
    let cure = |bench: &mut Bench| {
        let own = format!("release_shared = [{:?}]\n", shared.display().to_string());
        bench.configure(&format!("{released}{own}"), "");
        bench.reload();
    };
    let fault = |bench: &Bench| bench.ask("/leads.php");
    page.cure("Access denied.", "release_shared");
    let causes = ["leads out of its release and release_shared"];
    page.drive(("Access denied.", &causes), bench, fault, (cure, "/leads.php"));
}

fn starts(page: &mut Page) {
    let mut bench = Bench::new();
    let app = bench.dir.join("app");
    fs::create_dir(&app).expect("mkdir");
    fs::write(app.join("wsgi.py"), "import nosuchmodule\n").expect("wsgi.py");
    let listen = format!(
        "listen = {{ address = \"{}/www.sock\", owner = \"www-data\" }}\n{STATIC}",
        bench.dir.display()
    );
    let python = application_in("wsgi", &app, "");
    bench.write(&pool(&bench.dir, "www", &listen, &python));
    bench.start();
    let text = "The application could not be started (error …)";
    let again = page.cure(text, "forkyard restart www");
    let cure = |bench: &mut Bench| {
        let text = "def application(environ, start_response):\n    start_response('200 OK', [])\n    return [b'served']\n";
        fs::write(app.join("wsgi.py"), text).expect("wsgi.py");
        bench.run(&again);
    };
    let causes = ["How to solve it:", "requests are refused", "failing"];
    page.drive((text, &causes), &mut bench, |bench| bench.ask("/"), (cure, "/"));

    bench.configure(STATIC, "");
    bench.start();
    let second = bench.dir.join("second.toml");
    let text = read_file(bench.dir.join("forkyard.toml"));
    fs::write(&second, text.replace("control.sock", "second.sock")).expect("configuration");
    let fault = |_: &Bench| {
        let program = env!("CARGO_BIN_EXE_forkyard");
        refused(Command::new(program).args(["run", "-c"]).arg(&second))
    };
    let end = |bench: &mut Bench| {
        bench.daemon = None;
        bench.start();
    };
    page.drive(
        ("already listens on", &[]),
        &mut bench,
        fault,
        (end, "/index.php"),
    );
    let fpm = bench.dir.join("fpm.conf");
    let socket = bench.dir.join("www.sock").display().to_string();
    let port = bench.port();
    let fault = |listen: &str| {
        let text =
            "[global]\nerror_log = /dev/stderr\n[www]\nuser = www-data\npm = static\npm.max_children = 1\n";
        fs::write(&fpm, format!("{text}listen = {listen}\n")).expect("fpm.conf");
        let program = crate::support::forkyard_fpm();
        refused(Command::new(program).args(["-F", "-y"]).arg(&fpm))
    };
    page.drive(
        (ANOTHER, &["pool www on /run/forkyard-www.sock"]),
        &mut bench,
        |_| fault(&socket),
        (end, "/index.php"),
    );
    page.drive(
        ("Address already in use", &[]),
        &mut bench,
        |_| fault(&format!("127.0.0.1:{port}")),
        (end, "/index.php"),
    );
}

fn settings(page: &mut Page) {
    let mut bench = Bench::started();
    let kept = "the configuration is not reloaded, the old one stays in force";
    bench.configure(&format!("{STATIC}max_childs = 2\n"), "");
    let fault = |bench: &Bench| bench.run("forkyard reload");
    let right = |bench: &mut Bench| {
        bench.configure(STATIC, "");
        bench.reload();
    };
    let causes = ["last reload", "refused, the old configuration stays in force"];
    page.drive((kept, &causes), &mut bench, fault, (right, "/index.php"));
    let unknown = "Unable to set php_admin_value";
    bench.configure(STATIC, "php_admin_value = { upload_max_size = \"9M\" }\n");
    let causes = ["correct the name or the value"];
    page.drive((unknown, &causes), &mut bench, fault, (right, "/index.php"));

    let missing = "Undefined array key";
    bench.script(
        "env.php",
        "echo $_SERVER['STRIPE_KEY'] === 'sk_1' ? 'served' : '';",
    );
    let variable = page.cure(missing, "env = { STRIPE_KEY = \"sk_1\" }");
    let cure = |bench: &mut Bench| {
        bench.configure(&format!("{STATIC}{variable}\n"), "");
        bench.reload();
    };
    let fault = |bench: &Bench| bench.ask("/env.php");
    page.drive(
        (missing, &["clear_env = true"]),
        &mut bench,
        fault,
        (cure, "/env.php"),
    );
}

#[test]
fn every_error_message_of_the_page_leads_to_its_cure() {
    skip_if!(needs_root());
    let mut page = Page::read();
    connections(&mut page);
    answers_of_nginx(&mut page);
    time(&mut page);
    scripts(&mut page);
    starts(&mut page);
    settings(&mut page);
    for entry in &page.0 {
        assert!(
            entry.left.is_empty(),
            "{:?}: nothing shows {:?}",
            entry.texts,
            entry.left
        );
    }
}
