//! Invalid FastCGI: an error answer or a closed connection, never a hang.

use crate::support::prelude::*;

fn daemon() -> Daemon {
    let settings = "pm = \"static\"\nmax_children = 1\nclient_timeout = \"1s\"\nlimits = { params_bytes = 4096, params_count = 50 }\n";
    let daemon = Daemon::start(|dir| php_pool(dir, settings, ""));
    daemon.write(
        "echo.php",
        "<?php echo strlen(file_get_contents('php://input')), ' ', $_SERVER['LONG'] ?? '';",
    );
    daemon
}

fn wire(params: &Params, body: &[u8], record_content: usize) -> Vec<u8> {
    encoded(&Request {
        params: &params.pairs(),
        body,
        record_content,
        ..Request::default()
    })
}

#[test]
fn pairs_may_be_split_anywhere() {
    let daemon = daemon();
    let params = Params::get(&daemon.dir, "echo.php", "")
        .with("LONG", &"v".repeat(300))
        .with("CONTENT_LENGTH", "5");
    for size in [1, 2, 7, 64, 1000] {
        let mut client = daemon.client("www");
        client.send_raw(&wire(&params, b"12345", size)).expect("send");
        assert_eq!(
            client.answer().expect("answer").body(),
            format!("5 {}", "v".repeat(300))
        );
    }
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let daemon = daemon();
    let params = Params::get(&daemon.dir, "echo.php", "");
    let mut client = daemon.client("www");
    for byte in wire(&params, b"", 65_000) {
        client.send_raw(&[byte]).expect("send");
    }
    assert_eq!(client.answer().expect("answer").body(), "0 ");
}

#[test]
fn a_client_that_falls_silent_in_its_request_is_dropped() {
    let daemon = daemon();
    let params = Params::get(&daemon.dir, "echo.php", "");
    let mut client = daemon.client("www");
    let bytes = wire(&params, b"", 65_000);
    client.send_raw(&bytes[..bytes.len() / 2]).expect("send");
    assert!(client.read_raw().expect("end").is_empty());
    daemon.wait_for("did not complete its request within 1 s");
    assert_eq!(daemon.get("www", "echo.php").body(), "0 ");
}

#[test]
fn too_many_or_too_long_parameters_are_refused_with_an_answer() {
    let daemon = daemon();
    let params = Params::get(&daemon.dir, "echo.php", "").with("BIG", &"x".repeat(5000));
    let mut client = daemon.client("www");
    client.send_raw(&wire(&params, b"", 60_000)).expect("send");
    let answer = client.answer().expect("answer");
    assert!(answer.ended && answer.stdout.is_empty());
    assert_eq!(daemon.get("www", "echo.php").body(), "0 ");
}

#[test]
fn noise_ends_the_connection_and_no_worker() {
    let daemon = daemon();
    let worker = daemon.wait_for_workers("www", 1);
    let mut state = 99_u64;
    for length in [1, 7, 8, 9, 100, 5000] {
        let noise: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            })
            .collect();
        let mut client = daemon.client("www");
        let _ = client.send_raw(&noise);
        client.shut();
        let _ = client.read_raw();
        assert_eq!(
            daemon.get("www", "echo.php").body(),
            "0 ",
            "after {length} bytes of noise"
        );
    }
    assert_eq!(daemon.workers("www"), worker);
}

#[test]
fn management_records_are_answered() {
    let daemon = daemon();
    let mut client = daemon.client("www");
    let mut bytes = vec![1, 9, 0, 0, 0, 17, 0, 0, 15, 0];
    bytes.extend_from_slice(b"FCGI_MPXS_CONNS");
    bytes.extend_from_slice(&[1, 77, 0, 0, 0, 0, 0, 0]);
    client.send_raw(&bytes).expect("send");
    client.shut();
    let answer = client.read_raw().expect("answer");
    let text = String::from_utf8_lossy(&answer);
    assert!(text.contains("FCGI_MPXS_CONNS0"), "{answer:?}");
    assert!(
        answer.windows(9).any(|w| w[..2] == [1, 11] && w[8] == 77),
        "UNKNOWN_TYPE: {answer:?}"
    );
}

#[test]
fn an_unknown_role_is_answered() {
    let daemon = daemon();
    let mut client = daemon.client("www");
    client
        .send_raw(&[1, 1, 0, 1, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0])
        .expect("send");
    client.shut();
    let answer = client.read_raw().expect("answer");
    assert!(
        answer.windows(13).any(|w| w[1] == 3 && w[12] == 3),
        "END_REQUEST, UNKNOWN_ROLE: {answer:?}"
    );
}
