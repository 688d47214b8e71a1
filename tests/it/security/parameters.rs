//! What reaches a pool's socket can't set the environment of the pool's programs.

use crate::support::prelude::*;

const HOSTILE: [(&str, &str); 10] = [
    ("PERL5OPT", "-MEvil"),
    ("PERL5LIB", "DIR"),
    ("LD_PRELOAD", "DIR/evil.so"),
    ("PATH", "DIR"),
    ("IFS", "x"),
    ("ENV", "DIR/evil.sh"),
    ("BASH_ENV", "DIR/evil.sh"),
    ("BASH_FUNC_id%%", "() { echo evil; }"),
    ("HTTP_PROXY", "http://evil"),
    ("GIT_DIR", "DIR"),
];

const PERL: &str = "#!/usr/bin/perl\nprint \"Content-Type: text/plain\\r\\n\\r\\n\";\n\
    print \"$_=$ENV{$_}\\n\" for sort keys %ENV;\nprint 'id: ', `id -u`;\nprint 'bash: ', `bash -c 'id -u'`;\n";

const FAST: &str = "use FCGI;\nmy $request = FCGI::Request();\nwhile ($request->Accept() >= 0) {\n\
    print \"Content-Type: text/plain\\r\\n\\r\\n\";\nprint \"$_=$ENV{$_}\\n\" for sort keys %ENV;\n}\n";

fn start(application: &str) -> Daemon {
    let daemon = Daemon::start(|dir| {
        fs::write(dir.join("fast.pl"), FAST).expect("write");
        pool(dir, "www", "pm = \"static\"\nmax_children = 1", application)
    });
    write_program(&daemon.dir.join("run.cgi"), PERL);
    let mark = daemon.dir.join("evil").display().to_string();
    daemon.write("Evil.pm", &format!("open my $f, '>', '{mark}'; 1;\n"));
    daemon.write("evil.sh", &format!("echo >{mark}\n"));
    write_program(&daemon.dir.join("id"), format!("#!/bin/sh\necho >{mark}\n"));
    daemon
}

fn hostile(dir: &Path) -> Params {
    let own = Params::get(dir, "run.cgi", "a=b")
        .with("HTTP_X_OWN", "mine")
        .with("REMOTE_USER", "ann")
        .with("HTTPS", "on");
    HOSTILE.iter().fold(own, |params, (name, value)| {
        params.with(name, &value.replace("DIR", &dir.display().to_string()))
    })
}

fn ask(daemon: &Daemon) -> String {
    let answer = daemon.client("www").request(&hostile(&daemon.dir), b"");
    let answer = answer.expect("answer");
    assert!(answer.ended, "{}", answer.text());
    answer.body()
}

fn is_clean(body: &str, dir: &Path) {
    for (name, value) in HOSTILE {
        let line = format!("{name}={}", value.replace("DIR", &dir.display().to_string()));
        assert!(!body.lines().any(|seen| seen == line), "{line} in {body}");
    }
    for line in [
        "QUERY_STRING=a=b",
        "HTTP_X_OWN=mine",
        "REMOTE_USER=ann",
        "HTTPS=on",
        "SERVER_PORT=80",
    ] {
        assert!(body.lines().any(|seen| seen == line), "{line} in {body}");
    }
    assert!(!dir.join("evil").exists(), "something of the request was run");
}

#[test]
fn a_cgi_program_gets_the_request_and_no_environment_of_the_sender_s() {
    let daemon = start("runtime = \"cgi\"\nroot = \"DIR\"\n");
    let body = ask(&daemon);
    is_clean(&body, &daemon.dir);
    let uid = |what: &str| {
        let mut lines = body.lines();
        lines.find_map(|line| line.strip_prefix(what)?.parse::<u32>().ok())
    };
    assert!(uid("id: ").is_some() && uid("id: ") == uid("bash: "), "{body}");
}

#[test]
fn nor_does_a_fastcgi_program() {
    let daemon = start("runtime = \"fastcgi\"\nprogram = \"/usr/bin/perl\"\narguments = [\"DIR/fast.pl\"]\n");
    is_clean(&ask(&daemon), &daemon.dir);
}

#[test]
fn what_the_operator_lists_is_passed_on() {
    for application in [
        "runtime = \"cgi\"\nroot = \"DIR\"\n",
        "runtime = \"fastcgi\"\nprogram = \"/usr/bin/perl\"\narguments = [\"DIR/fast.pl\"]\n",
    ] {
        let daemon = start(&format!(
            "{application}parameters = [\"GIT_*\", \"IFS\", \"HTTP_PROXY\"]"
        ));
        let body = ask(&daemon);
        let dir = daemon.dir.display();
        for line in [format!("GIT_DIR={dir}"), "IFS=x".to_owned()] {
            assert!(body.lines().any(|seen| seen == line), "{line} in {body}");
        }
        assert_lacks(&body, "HTTP_PROXY");
        assert_lacks(&body, "PERL5OPT");
    }
}
