//! php-fpm, forkyard and forkyard-fpm on one site, each with a unix socket and a TCP port.

use crate::support::prelude::*;

pub(super) struct Backend {
    pub(super) socket: PathBuf,
    pub(super) port: u16,
}

pub(super) struct Backends {
    pub(super) site: tempfile::TempDir,
    pub(super) body_md5: String,
    pub(super) all: [Backend; 3],
    _forkyard: Daemon,
    _others: [Fpm; 2],
}

struct Fpm {
    _child: process::Guard,
    _directory: tempfile::TempDir,
}

const VARS: &str = "<?php
header('X-Seen: ' . $_SERVER['SCRIPT_NAME']);
$names = ['PHP_SELF', 'SCRIPT_NAME', 'PATH_INFO', 'SCRIPT_FILENAME', 'PATH_TRANSLATED', 'REQUEST_URI', 'QUERY_STRING',
    'REQUEST_METHOD', 'DOCUMENT_ROOT', 'DOCUMENT_URI', 'CONTENT_LENGTH', 'CONTENT_TYPE', 'ORIG_PATH_INFO',
    'ORIG_SCRIPT_NAME', 'ORIG_SCRIPT_FILENAME', 'ORIG_PATH_TRANSLATED', 'REDIRECT_STATUS', 'REDIRECT_URL',
    'HTTP_X_A', 'PHP_AUTH_USER', 'PHP_AUTH_PW', 'REMOTE_USER', 'AUTH_TYPE', 'GATEWAY_INTERFACE', 'SERVER_PROTOCOL',
    'HTTP_HOST', 'SERVER_NAME', 'HTTPS', 'argc'];
$seen = ['file' => __FILE__, 'get' => $_GET, 'post' => $_POST];
foreach ($names as $name) {
    if (array_key_exists($name, $_SERVER)) {
        $seen[$name] = $_SERVER[$name];
    }
}
echo json_encode($seen, JSON_PRETTY_PRINT), \"\\n\";
";

impl Backends {
    pub(super) fn start() -> Backends {
        let site = directory();
        let root = site.path().join("html");
        fs::create_dir_all(root.join("sub")).expect("html");
        for name in [
            "vars.php",
            "index.php",
            "sub/vars.php",
            "sub/index.php",
            "with space.php",
            "a+b.php",
        ] {
            fs::write(root.join(name), VARS).expect("script");
        }
        for (name, text) in [
            (
                "up.php",
                "<?php $x = file_get_contents('php://input'); echo strlen($x), ' ', md5($x);",
            ),
            ("down.php", "<?php echo str_repeat('0123456789abcdef', 65536);"),
            ("redirect.php", "<?php header('Location: /vars.php?from=here');"),
            (
                "teapot.php",
                "<?php http_response_code(418); header('X-Tea: yes'); echo 'short';",
            ),
        ] {
            fs::write(root.join(name), text).expect("script");
        }
        let body: Vec<u8> = (0..1_u32 << 20)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let file = site.path().join("body");
        fs::write(&file, body).expect("body");
        let sum = Command::new("md5sum").arg(&file).output().expect("md5sum");
        let body_md5 = String::from_utf8_lossy(&sum.stdout)[..32].to_owned();

        let (stock, stock_at) = fpm(concat!("/usr/sbin/php-fpm", env!("FORKYARD_PHP")), 40);
        let (ours, ours_at) = fpm(crate::support::forkyard_fpm(), 2);
        let port = free_port();
        let forkyard = Daemon::start(|dir| {
            let pool = |name: &str, listen: &str| {
                let user = if is_root() { "user = \"www-data\"\n" } else { "" };
                format!(
                    "[pool.{name}]\n{user}listen = {listen}\npm = \"static\"\nmax_children = 2\n\
                     [pool.{name}.application]\nruntime = \"php\"\nversion = \"{PHP_VERSION}\"\n"
                )
            };
            let unix = format!("{{ address = \"{}/www.sock\", mode = \"0666\" }}", dir.display());
            pool("www", &unix) + &pool("tcp", &format!("\"127.0.0.1:{port}\""))
        });
        let own_at = Backend {
            socket: forkyard.socket("www"),
            port,
        };
        Backends {
            site,
            body_md5,
            all: [stock_at, own_at, ours_at],
            _forkyard: forkyard,
            _others: [stock, ours],
        }
    }

    pub(super) fn settle(&self, example: &str, backend: &Backend, port: u16) -> String {
        let html = self.site.path().join("html").display().to_string();
        example
            .replace("/run/forkyard-www.sock", &backend.socket.display().to_string())
            .replace("127.0.0.1:9000", &format!("127.0.0.1:{}", backend.port))
            .replace("\"port\" => 9000", &format!("\"port\" => {}", backend.port))
            .replace("/var/www/html", &html)
            .replace("*:80", &format!("127.0.0.1:{port}"))
            .replace("http://:80", &format!("http://:{port}"))
            .replace("listen 80;", &format!("listen 127.0.0.1:{port};"))
            .replace("include fastcgi_params", "include /etc/nginx/fastcgi_params")
    }
}

fn fpm(program: &str, workers: u32) -> (Fpm, Backend) {
    let directory = directory();
    let path = directory.path().display();
    let port = free_port();
    let user = if is_root() {
        "user = www-data\ngroup = www-data\n"
    } else {
        ""
    };
    let pool = |name: &str, listen: &str| {
        format!(
            "[{name}]\nlisten = {listen}\nlisten.mode = 0666\n{user}pm = static\npm.max_children = {workers}\n"
        )
    };
    let text = format!("[global]\nerror_log = {path}/log\ndaemonize = no\n")
        + &pool("www", &format!("{path}/www.sock"))
        + &pool("tcp", &format!("127.0.0.1:{port}"));
    let file = directory.path().join("fpm.conf");
    fs::write(&file, text).expect("writable");
    let child = Command::new(program)
        .args(["-F", "-y"])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it can be run");
    let backend = Backend {
        socket: directory.path().join("www.sock"),
        port,
    };
    until("the daemon to listen", || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let fpm = Fpm {
        _child: process::Guard::terminate(child),
        _directory: directory,
    };
    (fpm, backend)
}
