//! CGI programs: environment, bodies in both directions, and failures.

use super::assert_echoes;
use super::fastcgi_programs::{pid_in, wait_for_end};
use crate::support::prelude::*;

fn start(settings: &str) -> Daemon {
    Daemon::start(|dir| {
        let settings = format!("pm = \"static\"\nmax_children = 2\ncatch_workers_output = true\n{settings}");
        let settings = settings.replace("DIR", &dir.display().to_string());
        let application = application_in("cgi", dir, "");
        with_control(dir) + &pool(dir, "www", &settings, &application)
    })
}

fn program(daemon: &Daemon, name: &str, text: &str) {
    write_program(&daemon.dir.join(name), text);
}

#[test]
fn a_program_finds_what_cgi_promises() {
    let daemon = start("");
    program(
        &daemon,
        "run.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\n'\nenv\necho cwd=$PWD args=$#\nls -l /proc/self/fd | grep -c -- '->'\n",
    );
    let params = Params::get(&daemon.dir, "run.cgi/some/path", "a=b")
        .with("HTTP_PROXY", "http://evil")
        .with("HTTP_X_OWN", "value");
    let body = daemon.ask("www", &params).body();
    let dir = daemon.dir.display();
    for line in [
        "GATEWAY_INTERFACE=CGI/1.1".to_owned(),
        "QUERY_STRING=a=b".to_owned(),
        "SCRIPT_NAME=/run.cgi".to_owned(),
        format!("SCRIPT_FILENAME={dir}/run.cgi"),
        "PATH_INFO=/some/path".to_owned(),
        format!("PATH_TRANSLATED={dir}/some/path"),
        "HTTP_X_OWN=value".to_owned(),
        format!("cwd={dir} args=0"),
        "4".to_owned(),
    ] {
        assert!(body.lines().any(|seen| seen == line), "{line} in\n{body}");
    }
    assert_lacks(&body, "HTTP_PROXY");
    assert_lacks(&body, "CONTENT_");
}

#[test]
fn bodies_stream_both_ways() {
    let daemon = start("");
    program(
        &daemon,
        "cat.cgi",
        "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n'\nexec cat\n",
    );
    assert_echoes(&daemon, "cat.cgi", "");
}

#[test]
fn a_long_error_text_before_the_header_is_whole() {
    let daemon = start("");
    program(
        &daemon,
        "loud.cgi",
        "#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' x >&2\nprintf 'Content-Type: text/plain\\n\\ntold'\n",
    );
    let answer = daemon.get("www", "loud.cgi");
    assert_eq!((answer.body().as_str(), answer.stderr.len()), ("told", 200_000));
}

#[test]
fn a_status_or_length_that_is_wrong_is_told() {
    let daemon = start("");
    for (number, (field, line)) in [
        ("Status: OK", "its Status is \"OK\"; three digits"),
        ("Status: 2000 OK", "its Status is \"2000 OK\"; three digits"),
        (
            "Content-Length: five",
            "its Content-Length is \"five\"; the number of bytes",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("{number}.cgi");
        let text = format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\n{field}\\n\\nbody'\n");
        program(&daemon, &name, &text);
        let answer = daemon.get("www", &name);
        assert!(answer.status().starts_with("500 ") && answer.ended, "{answer:?}");
        let line = format!("/{name}: {line}");
        assert_contains(&daemon.wait_for(&line), "malformed answer of ");
    }
}

#[test]
fn what_goes_wrong_is_told() {
    let daemon = start("");
    daemon.write("plain.txt", "text");
    for (name, text) in [
        ("mute.cgi", "#!/bin/sh\nexit 3\n"),
        ("bare.cgi", "#!/bin/sh\necho hello; echo\n"),
        ("lost.cgi", "#!/no/such/interpreter\n"),
        ("noise.cgi", "no program at all\n"),
    ] {
        program(&daemon, name, text);
    }
    for (name, wanted, line) in [
        ("none.cgi", "404 Not Found", "none.cgi does not exist"),
        (
            "plain.txt",
            "403 Forbidden",
            "plain.txt is not an executable file: chmod +x it",
        ),
        (
            "mute.cgi",
            "500 Internal Server Error",
            "mute.cgi: it wrote nothing",
        ),
        (
            "bare.cgi",
            "500 Internal Server Error",
            "bare.cgi: a line of its header is not \"Name: value\": \"hello\"",
        ),
        (
            "lost.cgi",
            "500 Internal Server Error",
            "its interpreter, the one behind #!, does not exist",
        ),
        ("noise.cgi", "500 Internal Server Error", "it is no program"),
    ] {
        let answer = daemon.get("www", name);
        assert_eq!(answer.status(), wanted, "{name}");
        daemon.wait_for(line);
        assert!(answer.ended, "{name}");
    }
    daemon.wait_for("mute.cgi exited with code 3");
    let outside = Params::get(&daemon.dir, "x", "").with("SCRIPT_FILENAME", "/bin/ls");
    assert_eq!(daemon.ask("www", &outside).status(), "403 Forbidden");
    daemon.wait_for("/bin/ls lies outside application.root");
}

#[test]
fn standard_error_reaches_the_web_server_and_the_log() {
    let daemon = start("");
    program(
        &daemon,
        "moan.cgi",
        "#!/bin/sh\necho oh dear >&2\nprintf 'Status: 204\\n\\n'\n",
    );
    let answer = daemon.get("www", "moan.cgi");
    assert_eq!(answer.status(), "204");
    assert_eq!(answer.error_text(), "oh dear\n");
    daemon.wait_for("moan.cgi said into stderr: \"oh dear\"");
}

/// nginx has room for a few KiB of errors before the header.
#[test]
fn many_words_on_standard_error_do_not_hide_the_answer() {
    let daemon = start("");
    let text = "#!/bin/sh\nhead -c 30000 /dev/zero | tr '\\0' x >&2; echo >&2\nprintf 'Content-Type: text/plain\\n\\nwell'\n";
    program(&daemon, "moan.cgi", text);
    let socket = daemon.socket("www");
    let server = format!(
        "root {}; location / {{ include /etc/nginx/fastcgi_params; fastcgi_param SCRIPT_FILENAME \
         $document_root$fastcgi_script_name; fastcgi_pass unix:{}; }}",
        daemon.dir.display(),
        socket.display()
    );
    let nginx = Nginx::start(&server, "");
    assert_eq!(curl(&[&nginx.url("/moan.cgi")]), "well");
}

#[test]
fn a_program_may_speak_http_itself() {
    let daemon = start("");
    program(
        &daemon,
        "nph-x.cgi",
        "#!/bin/sh\nprintf 'HTTP/1.0 418 Teapot\\r\\nConnection: close\\r\\nX-A: b\\r\\n\\r\\nshort'\n",
    );
    let answer = daemon.get("www", "nph-x.cgi");
    assert_eq!(answer.text(), "Status: 418 Teapot\r\nX-A: b\r\n\r\nshort");
}

#[test]
fn a_client_that_leaves_takes_its_program_along() {
    let daemon = start("access.log = \"DIR/access\"\naccess.format = \"%s %m %r\"\n");
    let head = "printf 'Content-Type: text/plain\\n\\n'";
    for (name, head) in [("silent.cgi", ""), ("sleep.cgi", head)] {
        let text = format!("#!/bin/sh\nsleep 1000 & echo $! >child; echo $$ >leader\n{head}\nwait\n");
        program(&daemon, name, &text);
        let client = daemon.send("www", &Params::get(&daemon.dir, name, ""));
        let pids = [pid_in(&daemon, "child"), pid_in(&daemon, "leader")];
        drop(client);
        pids.into_iter().for_each(wait_for_end);
        daemon.wait_for(&format!("{name} was killed: the client left"));
        for file in ["child", "leader"] {
            fs::remove_file(daemon.dir.join(file)).expect("it was written");
        }
    }
    wait_until("the access log's lines", || {
        let log = fs::read_to_string(daemon.dir.join("access")).unwrap_or_default();
        log == "499 GET /silent.cgi\n499 GET /sleep.cgi\n"
    });
    wait_until("the counts", || {
        let requests = &daemon.status(&["www"])["pools"][0]["numbers"]["requests"];
        requests["4xx"] == 2 && requests["2xx"] == 0 && requests["none"] == 0
    });
    assert_eq!(
        daemon.get("www", "none.cgi").status(),
        "404 Not Found",
        "the worker serves on"
    );
}

#[test]
fn a_worker_that_is_ended_takes_its_program_along() {
    let daemon = start("request_terminate_timeout = \"1s\"\n");
    program(
        &daemon,
        "sleep.cgi",
        "#!/bin/sh\necho $$ >leader\nexec sleep 1000\n",
    );
    let _client = daemon.send("www", &Params::get(&daemon.dir, "sleep.cgi", ""));
    wait_for_end(pid_in(&daemon, "leader"));
}
