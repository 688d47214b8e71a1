//! PHP on a heap full of garbage: missing terminators and uninitialized reads change an answer.

use super::client::Request;
use super::servers::{Setup, directory};
use super::{Pair, scripts};
use crate::support::prelude::*;

pub(super) const WANTED: &str = "FORKYARD_GARBAGE";
/// PHP allocates with malloc(3), which fills blocks when it allocates and frees them. glibc doesn't fill blocks in its
/// thread cache, so that is off.
pub(super) const GARBAGE: [(&str, &str); 2] = [
    ("USE_ZEND_ALLOC", "0"),
    (
        "GLIBC_TUNABLES",
        "glibc.malloc.perturb=165:glibc.malloc.tcache_count=0",
    ),
];
/// glibc fills allocated blocks with the inverted bits of 165.
const FILLED: &str = "5a5a5a5a 0\n";
const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn answers_are_the_same_on_a_heap_full_of_garbage() {
    let pair = Pair::start(&Setup::new().garbage().admin_value("ffi.enable", "1"));
    assert_eq!(pair.get("/heap.php").body(), FILLED);
    let files = directory();
    write_file(
        files.path().join(".user.ini"),
        "precision = 7\nuser_agent = agent\n",
    );
    fs::copy(scripts().join("ini.php"), files.path().join("ini.php")).expect("copy");
    let get = |uri: &str| Request::get(&scripts(), uri);
    let upload =
        "--BB\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\ncontent\r\n--BB--\r\n";
    let requests = [
        get("/status.php?a=1"),
        get("/status.php").with("HTTP_AUTHORIZATION", "Basic dXNlcjpw"),
        get("/server.php?a=1&b[]=2").with("HTTP_COOKIE", "a=1; b=%20x"),
        get("/server.php").with("PATH_INFO", "/x/y"),
        get("/missing.php"),
        get("/broken.inc"),
        get("/functions.php?names=strtoupper,strtolower").with("PHP_VALUE", "= x"),
        Request::get(files.path(), "/ini.php?names=precision,user_agent"),
        get("/headers.php"),
        get("/output.php?way=flush"),
        get("/sapi.php"),
        get("/sqlite.php?persistent=1"),
        get("/fault.php"),
        Request::post(&scripts(), "/server.php", FORM, "a=1&b[x]=2"),
        Request::post(&scripts(), "/server.php", "application/json", "{}"),
        Request::post(
            &scripts(),
            "/input.php",
            "multipart/form-data; boundary=BB",
            upload,
        ),
    ];
    let special = get("/ini.php?names=highlight.string,highlight.comment")
        .with("PHP_VALUE", "highlight.string = red")
        .with("PHP_ADMIN_VALUE", "highlight.comment = \"blue\"");
    for request in requests.iter().chain(&requests).chain([&special, &special]) {
        pair.same(request);
    }
}

const PAGE: &str = "<?php $a = fpm_get_status();
echo is_array($a) ? 'array ' : 'false ', forkyard_push('mail', 'page', ['a' => str_repeat('x', 100)]) > 0 ? 'pushed' : 'not';";

const WORKER: &str = "<?php while (forkyard_handle_request(function () { require __DIR__ . '/page.php'; }));";

#[test]
fn every_kind_of_worker_reads_json_from_such_a_heap() {
    let application = format!("runtime = \"php\"\nversion = {:?}\n", env!("FORKYARD_PHP"));
    let configure = |dir: &Path| {
        let [store, user] = match is_root() {
            true => ["store", "user = \"www-data\"\n"],
            false => ["store", ""],
        };
        make_folder(&dir.join(store));
        let settings = "clear_env = false\npm = \"static\"\nmax_children = 1\n";
        let ffi = "php_admin_value = { \"ffi.enable\" = \"1\" }\n";
        let script = format!("worker = \"{}/worker.php\"\n", dir.display());
        [
            ("own", "preloader = \"own\"\n".to_owned()),
            ("zygote", "preloader = \"zygote\"\n".to_owned()),
            ("loop", format!("{script}worker_mode = \"loop\"\n")),
            ("snapshot", format!("{script}worker_mode = \"snapshot\"\n")),
        ]
        .map(|(name, more)| pool(dir, name, settings, &format!("{application}{ffi}{more}")))
        .concat()
            + &format!(
                "[jobs]\nstore = \"{0}/store/jobs.db\"\nlisten = \"{0}/jobs.sock\"\n{user}\
                 [jobs.queue.mail]\npool = \"own\"\nscript = \"{0}/job.php\"\n",
                dir.display()
            )
    };
    let files = directory();
    for (name, text) in [("page.php", PAGE), ("worker.php", WORKER), ("job.php", "<?php")] {
        fs::write(files.path().join(name), text).expect("write");
    }
    fs::copy(scripts().join("heap.php"), files.path().join("heap.php")).expect("copy");
    fs::write(files.path().join("forkyard.toml"), configure(files.path())).expect("write");
    let mut command = forkyard(&["run"], files.path());
    command.envs(GARBAGE);
    let daemon = Daemon::launch(files.path(), command);
    daemon.wait_for("ready to handle connections");
    for name in ["own", "zygote", "loop", "snapshot"] {
        if ["own", "zygote"].contains(&name) {
            assert_eq!(daemon.get(name, "heap.php").body(), FILLED, "{name}");
        }
        for _ in 0..3 {
            assert_eq!(daemon.get(name, "page.php").body(), "array pushed", "{name}");
        }
    }
}
