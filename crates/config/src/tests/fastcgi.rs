use super::*;
use crate::{Application, FastCgi, StartCommand};
use std::path::PathBuf;
use std::time::Duration;

/// A FastCGI pool; `more` starts at line 10.
fn program(more: &str) -> String {
    let php = "runtime = \"php\"\nversion = \"8.2\"\n";
    pool("").replace(php, &format!("runtime = \"fastcgi\"\n{more}\n"))
}

fn resolved(more: &str) -> FastCgi {
    let loaded = parse(&program(more), std::path::Path::new("f.toml"), &ROOT).expect("a valid configuration");
    match &loaded.config.pools[0].application {
        Application::FastCgi(fastcgi) => fastcgi.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_is_a_line_for_the_shell_or_a_path_with_arguments() {
    let line = resolved("start_command = \"plackup -s FCGI app.psgi\"");
    assert_eq!(
        line.command,
        StartCommand::Shell("plackup -s FCGI app.psgi".to_owned())
    );
    assert_eq!(line.root, None);
    assert_eq!(line.start_timeout, Duration::from_secs(90));
    assert_eq!(line.abort_timeout, Duration::from_secs(10));
    let path =
        resolved("program = \"/opt/app\"\narguments = [\"-x\"]\nabort_timeout = 0\nstart_timeout = \"5s\"");
    let arguments = vec!["-x".to_owned()];
    let command = StartCommand::Program {
        path: PathBuf::from("/opt/app"),
        arguments,
    };
    assert_eq!(path.command, command);
    assert_eq!(
        (path.start_timeout, path.abort_timeout),
        (Duration::from_secs(5), Duration::ZERO)
    );
}

#[test]
fn rules_of_fastcgi_programs() {
    cases(
        program,
        &ROOT,
        r#"
        ! 9:1: error: [pool www] application.start_command: missing; write start_command = "/usr/bin/php-cgi8.2", or program = "..." with arguments = [...]
        start_command = "a"
        program = "/a"
        ! 11:1: error: [pool www] application.program: start_command already names the program; leave one out
        start_command = "a"
        arguments = ["b"]
        ! 11:1: error: [pool www] application.arguments: start_command has its arguments in it; write them there
        start_command = " "
        ! 10:1: error: [pool www] application.start_command: there is no command in it; write the command that starts the program
        program = "php-cgi"
        ! 10:1: error: [pool www] application.program: "php-cgi" is not an absolute path; start it with /, or write start_command
        start_command = "a"
        start_timeout = 0
        ! 11:1: error: [pool www] application.start_timeout: 0 is too short; give a duration above zero, for example "10s"
    "#,
    );
}
