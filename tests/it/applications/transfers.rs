//! A hundred megabytes up and down, through workers that don't grow.

use super::{Site, assert_quiet, http};
use crate::support::prelude::*;

const LARGE: u64 = 100 * 1024 * 1024;
const SMALL: u64 = 64 * 1024;
const GROWTH_KIB: u64 = 4096;

const SETTINGS: &str = "pm = \"static\"\nmax_children = 1\n";
const LIMITS: &str = "php_admin_value = { upload_max_filesize = \"200M\", post_max_size = \"200M\", \
                      output_buffering = 0 }\n";
const UPLOAD: &str = "<?php $f = $_FILES['file']; if ($f['error']) die(\"error $f[error]\");
    echo filesize($f['tmp_name']), ' ', md5_file($f['tmp_name']), ' ', getmypid();";
const BODY: &str = "<?php $h = hash_init('md5'); $n = hash_update_stream($h, fopen('php://input', 'r'));
    echo $n, ' ', hash_final($h), ' ', getmypid();";

fn make_file(path: &Path, length: u64) -> String {
    let file = File::create(path).expect("create");
    file.set_len(length).expect("set_len");
    for at in (0..length).step_by(65_521) {
        file.write_at(&at.to_be_bytes()[..1.max((length - at).min(8) as usize)], at)
            .expect("write");
    }
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("chmod");
    digest(path)
}

fn digest(path: &Path) -> String {
    let output = Command::new("md5sum").arg(path).output().expect("md5sum");
    String::from_utf8_lossy(&output.stdout)
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn peak_kib(pid: u32) -> u64 {
    let line = process::status_line(pid, "VmHWM").expect("VmHWM");
    line.split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

fn uploads_stay_flat(buffering: &str) {
    let site = Site::start(
        SETTINGS,
        LIMITS,
        &format!("fastcgi_request_buffering {buffering};"),
    );
    site.write("upload.php", UPLOAD);
    site.write("body.php", BODY);
    let mut peaks = Vec::new();
    for length in [SMALL, LARGE] {
        let file = site.daemon.dir.join(format!("{length}.bin"));
        let sum = make_file(&file, length);
        let answer = http(&[
            "--form",
            &format!("file=@{}", file.display()),
            &site.nginx.url("/upload.php"),
        ])
        .text();
        let pid = answer
            .rsplit(' ')
            .next()
            .and_then(|pid| pid.parse().ok())
            .unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(answer, format!("{length} {sum} {pid}"));
        let binary = [
            "--header",
            "Content-Type: application/octet-stream",
            "--request",
            "POST",
            "--upload-file",
        ];
        let name = file.display().to_string();
        let answer = http(&[&binary[..], &[&name, &site.nginx.url("/body.php")]].concat()).text();
        assert_eq!(answer, format!("{length} {sum} {pid}"));
        peaks.push(peak_kib(pid));
    }
    assert!(
        peaks[1] < peaks[0] + GROWTH_KIB,
        "the worker grew from {} to {} KiB",
        peaks[0],
        peaks[1]
    );
    assert_quiet(&site.daemon);
}

tests! {
    fn uploads_that_nginx_stores_first_leave_the_worker_small() => uploads_stay_flat("on");
    fn uploads_that_nginx_passes_on_leave_the_worker_small() => uploads_stay_flat("off");
}

#[test]
fn a_download_leaves_the_worker_small() {
    let site = Site::start(SETTINGS, LIMITS, "");
    let pid = site.daemon.wait_for_workers("www", 1)[0];
    site.write(
        "send.php",
        "<?php header('Content-Type: application/octet-stream'); readfile($_GET['file']);",
    );
    let mut peaks = Vec::new();
    for length in [SMALL, LARGE] {
        let sum = make_file(&site.root.join("data.bin"), length);
        let copy = site.daemon.dir.join("copy.bin");
        let url = site.nginx.url("/send.php?file=data.bin");
        let done = Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--fail",
                "--max-time",
                "120",
                "--output",
            ])
            .arg(&copy)
            .arg(&url)
            .status();
        assert!(done.expect("curl").success());
        assert_eq!(
            (fs::metadata(&copy).expect("copy").len(), digest(&copy)),
            (length, sum)
        );
        peaks.push(peak_kib(pid));
    }
    assert_eq!(site.daemon.workers("www"), [pid]);
    assert!(
        peaks[1] < peaks[0] + GROWTH_KIB,
        "the worker grew from {} to {} KiB",
        peaks[0],
        peaks[1]
    );
    assert_quiet(&site.daemon);
}

#[test]
fn a_client_that_goes_in_the_middle_of_a_download_frees_the_worker() {
    let site = Site::start(SETTINGS, LIMITS, "");
    let pid = site.daemon.wait_for_workers("www", 1)[0];
    site.write(
        "endless.php",
        "<?php register_shutdown_function(fn() => file_put_contents(__DIR__ . '/aborted', connection_aborted()));
         while (true) echo str_repeat('x', 65536);",
    );
    site.write("pid.php", "<?php echo getmypid();");
    let mut client = connect(&site);
    client
        .write_all(b"GET /endless.php HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("send");
    client.read_exact(&mut vec![0; 1024 * 1024]).expect("a megabyte");
    drop(client);
    until("the script to end", || {
        (fs::read_to_string(site.root.join("aborted")).ok()? == "1").then_some(())
    });
    assert_eq!(site.get("/pid.php").text(), pid.to_string());
    assert_quiet(&site.daemon);
}

#[test]
fn a_client_that_goes_in_the_middle_of_an_upload_frees_the_worker() {
    let application = "php_admin_value = { enable_post_data_reading = 0 }\n";
    let site = Site::start(SETTINGS, application, "fastcgi_request_buffering off;");
    let pid = site.daemon.wait_for_workers("www", 1)[0];
    site.write(
        "body.php",
        "<?php touch('begun'); stream_get_contents(fopen('php://input', 'r')); touch('ended');",
    );
    site.write("pid.php", "<?php echo getmypid();");
    let mut client = connect(&site);
    let head = format!("POST /body.php HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LARGE}\r\n\r\n");
    client.write_all(head.as_bytes()).expect("send");
    client.write_all(&vec![b'x'; 1024 * 1024]).expect("send");
    wait_until("the script to begin", || site.root.join("begun").exists());
    drop(client);
    assert_eq!(site.get("/pid.php").text(), pid.to_string());
    assert_quiet(&site.daemon);
}

fn connect(site: &Site) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", site.nginx.port)).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
}
