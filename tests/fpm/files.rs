//! Configuration files, good and bad.

use super::both::{compare, forkyard_fpm, is_stock_there, said};
use crate::support::prelude::*;

const POOL: &str = "[www]\nlisten=/run/forkyard-test.sock\npm=static\npm.max_children=1\n";

pub(crate) const CASES: &[&str] = &[
    "",
    "  \n\t\n;x\n",
    "#x\n",
    "foo\n",
    "[www\n",
    "[]\n",
    "a=b=c\n",
    "=b\n",
    "pid = \"abc\n",
    "pid = 'abc\n",
    "pid = (1\n",
    "pid = a)\n",
    "pid = ${HOME\n",
    "a b = c\n",
    "x^y = 1\n",
    "null = 1\n",
    "yes = 1\n",
    "\"pid\" = x\n",
    "pid = ~\n",
    "pid = 1|\n",
    "pid == x\n",
    "env[a]=b\n",
    "env[a = 1\n",
    "env[a]b = 1\n",
    "[www]\nenv[a]\n",
    "[www]\nenv[]=x\n",
    "[www]\nenv[a]=\n",
    "[www]\nenv[a]=none\n",
    "env[]=x\n",
    "access.suppress_path[]=/a\n",
    "[www]\naccess.suppress_path[k]=a\n",
    "[www]\naccess.suppress_path[]=\n",
    "[www]\nphp_flag[a] = ''\n",
    "[www]\nphp_value[a] = x '' y\n",
    "[www]\nphp_value[a] = ''\"b\"\n",
    "[www]\nphp_value[a] = (''\n",
    "[www]\nphp_value[a]",
    "pid = ''\n",
    "pid = ~",
    "[www]\nfoo[a]=1\n",
    "[www]\nphp_flag[a]=maybe\n",
    "[www]\naccess.suppress_path[k]=/a\n",
    "[www]\naccess.suppress_path[]=a\n",
    "daemonize = maybe\n",
    "rlimit_files = x\n",
    "rlimit_core = -1\n",
    "rlimit_core = x\n",
    "process_control_timeout = 5x\n",
    "process_control_timeout =\n",
    "log_level = foo\n",
    "syslog.facility = foo\n",
    "pid = /x/$pool\n",
    "[www]\npm = foo\n",
    "[www]\npid = x\n",
    "[WWW]\n[www]\nfoo=1\n",
    "include = a\ninclude = b\n",
    "include =\n",
    "include = /nope/*.conf\n",
    "include = {DIR}/missing*\n",
    "include = {DIR}/wrong.conf\n",
    "include = {DIR}/self.conf\n",
    "include = {DIR}\n",
    "[global]\nlog_limit=100\n{POOL}",
    "[global]\nprocess.max=-1\n{POOL}",
    "[global]\nprocess.priority=30\n{POOL}",
    "[global]\nevents.mechanism=foo\n{POOL}",
    "[global]\nerror_log=/nope/x\n{POOL}",
    "[global]\nerror_log=\n{POOL}",
    "[www]\n",
    "[www]\nlisten=1\n",
    "[www]\nlisten=1\npm=static\n",
    "[www]\nlisten=1\npm=dynamic\npm.max_children=5\n",
    "[www]\nlisten=1\npm=dynamic\npm.max_children=5\npm.min_spare_servers=1\n",
    "[www]\nlisten=1\npm=dynamic\npm.max_children=5\npm.min_spare_servers=1\npm.max_spare_servers=9\n",
    "[www]\nlisten=1\npm=dynamic\npm.max_children=5\npm.min_spare_servers=3\npm.max_spare_servers=2\n",
    "[www]\nlisten=1\npm=dynamic\npm.max_children=5\npm.min_spare_servers=1\npm.max_spare_servers=3\n\
     pm.start_servers=4\n",
    "[www]\nlisten=1\npm=dynamic\npm.max_children=5\npm.min_spare_servers=1\npm.max_spare_servers=3\n\
     pm.max_spawn_rate=0\n",
    "[www]\nlisten=1\npm=ondemand\npm.max_children=5\npm.process_idle_timeout=0\n",
    "[global]\nevents.mechanism=poll\n[www]\nlisten=1\npm=ondemand\npm.max_children=5\n",
    "[www]\nlisten=1\npm=ondemand\npm.max_children=5\nlisten.backlog=-5\n",
    "{POOL}prefix=/nope\n",
    "{POOL}process.priority=30\n",
    "{POOL}pm.status_path=x\n",
    "{POOL}pm.status_path=/\n",
    "{POOL}pm.status_path=/a*\n",
    "{POOL}pm.status_listen=/run/forkyard-test.sock\npm.status_path=/s\n",
    "{POOL}ping.path=x\n",
    "{POOL}ping.path=/a\nping.response=\n",
    "{POOL}request_slowlog_timeout=1\n",
    "{POOL}request_slowlog_timeout=9\nslowlog={DIR}/slow\nrequest_terminate_timeout=5\n",
    "{POOL}slowlog=/nope/x\nrequest_slowlog_timeout=2\n",
    "{POOL}request_slowlog_trace_depth=3\n",
    "{POOL}slowlog={DIR}/slow\nrequest_slowlog_trace_depth=-3\n",
    "{POOL}chroot=/nope\n",
    "{POOL}chroot=x$prefix\n",
    "{POOL}chroot=$prefix/x\nprefix=/tmp\n",
    "{POOL}chdir=/nope\n",
    "{POOL}chdir=x\n",
    "{POOL}chroot=/tmp\nchdir=/nope\n",
    "{POOL}[w2]\nlisten=/run/forkyard-test.sock\npm=static\npm.max_children=1\n",
    "{POOL}access.log=/nope/al\n",
    "{POOL}access.log={DIR}/access\naccess.format=\"%{z}C\"\n",
    "{POOL}access.log={DIR}/access\naccess.format=\"%{z}M\"\n",
    "{POOL}access.log={DIR}/access\naccess.format=\"%{z}d\"\n",
    "{POOL}access.log={DIR}/access\naccess.format=\"%e\"\n",
    "{POOL}access.log={DIR}/access\naccess.format=\"%o\"\n",
    "{POOL}access.log={DIR}/access\naccess.format=\"%{e\"\n",
    "{POOL}access.log={DIR}/access\naccess.format=\"%z\"\n",
    "{POOL}access.log={DIR}/access\naccess.format=\"%{x}m\"\n",
    "{POOL}user=nope\n",
    "{POOL}group=nope\n",
    "{POOL}listen.owner=nope\n",
    "{POOL}listen.group=nope\n",
    "{POOL}listen.setfib=1\n",
    concat!(
        "[www]\nlisten=/run/forkyard-test-0123456789-0123456789-0123456789-0123456789-0123456789-0123456789",
        "-0123456789-0123456789.sock\npm=static\npm.max_children=1\n"
    ),
    "{POOL}apparmor_hat=x\n",
    "[global]\nlog_level=WARN\n{POOL}",
];

pub(crate) fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    let directory = directory.to_string_lossy();
    // Without its own log a file would be tested with the system's log.
    let text = text.replace("{POOL}", POOL).replace("{DIR}", &directory);
    let text = if text.contains("error_log") || !text.contains("[www]\nlisten") {
        text
    } else {
        format!("error_log = {directory}/log\n{text}")
    };
    fs::write(&path, text).expect("the directory is writable");
    path.to_string_lossy().into_owned()
}

pub(crate) fn prepare(directory: &Path) {
    write(directory, "wrong.conf", "foo = 1\n");
    let own = directory.join("self.conf");
    fs::write(&own, format!("include = {}\n", own.display())).expect("the directory is writable");
}

#[test]
fn every_mistake_has_php_fpms_words() {
    skip_if!(!is_stock_there());
    let directory = tempfile::tempdir().expect("there is room");
    prepare(directory.path());
    let mut differences = String::new();
    for (at, text) in CASES.iter().enumerate() {
        let path = write(directory.path(), &format!("{at}.conf"), text);
        if let Err(difference) = compare(text, &["-n", "-t", "-R", "-y", &path]) {
            differences.push_str(&difference);
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn a_pool_needs_a_user_unless_root_is_allowed() {
    skip_if!(!is_stock_there());
    let directory = tempfile::tempdir().expect("there is room");
    let path = write(directory.path(), "no-user.conf", POOL);
    compare("without -R", &["-n", "-t", "-y", &path]).unwrap_or_else(|text| panic!("{text}"));
}

#[test]
fn files_and_prefixes_that_are_not_there() {
    skip_if!(!is_stock_there());
    let lines: [&[&str]; 4] = [
        &["-n", "-t", "-y", "/nope"],
        &["-n", "-t", "-p", "/nope"],
        &["-n", "-t", "-p", "/tmp"],
        &["-n", "-y", "/nope"],
    ];
    for arguments in lines {
        compare("", arguments).unwrap_or_else(|text| panic!("{text}"));
    }
}

pub(crate) const VALUES: &str = include_str!("values.conf");
pub(crate) const FULL: &str = include_str!("full.conf");
const NOTHING: &str = "{POOL}php_admin_value[open_basedir] = none\nphp_value[a] =\nphp_value[b] = \"\"\nphp_value[c] = off\n\
                       php_value[d] = no\nphp_value[e] = null\nphp_flag[f] =\nphp_flag[g] = \"\"\nphp_value[error_log] =\nphp_admin_value[error_log] = no\nphp_admin_value[h] = ${NOPE}\n";
const SAMPLE: &str = include_str!("../../conf/php-fpm.conf");

#[test]
fn the_dump_is_the_same_to_the_byte() {
    skip_if!(!is_stock_there());
    let directory = tempfile::tempdir().expect("there is room");
    let ondemand = "{POOL}pm=ondemand\npm.start_servers=4\npm.min_spare_servers=2\npm.max_spare_servers=4\n";
    let marked = "\u{feff}{POOL}\u{feff}; of its own\n\u{feff}[w2]\nlisten=/run/forkyard-2.sock\npm=static\npm.max_children=1";
    let cases = [
        ("values", VALUES),
        ("full", FULL),
        ("least", "{POOL}"),
        ("ondemand", ondemand),
        ("byte order marks", marked),
        ("nothing as a value", NOTHING),
    ];
    for (name, text) in cases {
        let path = write(directory.path(), name, text);
        let dump = compare(name, &["-n", "-tt", "-R", "-y", &path]).unwrap_or_else(|text| panic!("{text}"));
        assert_contains(&dump, "test is successful");
    }
    let debian = concat!("/etc/php/", env!("FORKYARD_PHP"), "/fpm/php-fpm.conf");
    if Path::new(debian).exists() {
        compare("Debian's", &["-tt", "-R", "-y", debian]).unwrap_or_else(|text| panic!("{text}"));
    }
}

fn whole_sample(directory: &str) -> String {
    let switched_on = |line: &str| match line.strip_prefix(';') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => rest.to_owned(),
        _ => line.to_owned(),
    };
    let text = SAMPLE.lines().map(switched_on).collect::<Vec<_>>().join("\n");
    ["/srv/www", "/srv", "/var/log", "log/"]
        .iter()
        .fold(text, |text, path| {
            let place = if path.ends_with('/') { "/" } else { "" };
            text.replace(&format!("= {path}"), &format!("= {directory}{place}"))
        })
}

#[test]
fn php_fpm_understands_the_sample_as_forkyard_does() {
    let directory = tempfile::tempdir().expect("there is room");
    let place = directory.path().display().to_string();
    let whole = whole_sample(&place);
    assert_lacks(&whole, "/srv");
    for (name, text) in [("sample", SAMPLE), ("whole", &whole)] {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("there is room");
        let arguments = ["-n", "-tt", "-y", &path.display().to_string()];
        let (dump, code) = said(forkyard_fpm(), &arguments);
        assert_eq!(code, Some(0), "{dump}");
        for line in ["listen = /run/forkyard-www.sock", "pm.max_children = 10"] {
            assert_contains(&dump, &format!("\t{line}\n"));
        }
        if is_stock_there() {
            compare(name, &arguments).unwrap_or_else(|text| panic!("{text}"));
        }
    }
}
