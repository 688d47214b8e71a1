//! Output that is flushed arrives while the script runs on.

use super::{Site, assert_quiet};
use crate::support::prelude::*;

const PARTS: usize = 5;

/// Each part is written once the client has the previous one: a buffered part would hang the test.
#[test]
fn flushed_output_arrives_part_by_part() {
    let settings = "pm = \"static\"\nmax_children = 1\n";
    let site = Site::start(settings, "", "fastcgi_buffering off;");
    let script = "<?php while (ob_get_level()) ob_end_flush();
        for ($i = 0; $i < 5; $i++) {
            while ($i && !file_exists(\"go$i\")) { usleep(1000); clearstatcache(); }
            echo \"part $i\\n\"; flush();
        }";
    site.write("stream.php", script);
    let mut stream = TcpStream::connect(("127.0.0.1", site.nginx.port)).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
        .write_all(b"GET /stream.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("send");
    let mut lines = BufReader::new(stream).lines();
    for part in 0..PARTS {
        let wanted = format!("part {part}");
        let seen = lines.by_ref().map_while(Result::ok).any(|line| line == wanted);
        assert!(seen, "{wanted} did not come");
        site.write(&format!("go{}", part + 1), "");
    }
    assert_quiet(&site.daemon);
}
