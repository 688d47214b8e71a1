//! What clients see, through a real nginx, while an application can't be started.

use super::{Broken, WELL_WSGI};
use crate::support::prelude::*;

fn front(broken: &Broken) -> Nginx {
    let socket = broken.daemon.socket("www");
    let server = format!(
        "location / {{ include /etc/nginx/fastcgi_params; fastcgi_pass unix:{}; }}",
        socket.display()
    );
    Nginx::start(&server, "")
}

#[test]
fn visitors_are_refused_at_once_and_see_nothing_but_the_id() {
    let broken = Broken::start("wsgi", "wsgi.py", "import a_secret_module\n", "", "");
    let nginx = front(&broken);
    let answer = curl(&["-i", &nginx.url("/")]);
    assert_starts(&answer, "HTTP/1.1 503 Service Unavailable");
    assert!(answer.contains("Retry-After: ") && answer.contains("Content-Type: text/plain"));
    assert_contains(&answer, "(error ");
    assert_lacks(&answer, "a_secret_module");
    let body = vec![b'x'; 300_000];
    let file = broken.root.path().join("body");
    fs::write(&file, body).expect("write");
    let upload = format!("@{}", file.display());
    let answer = curl(&["-i", "--data-binary", &upload, &nginx.url("/form")]);
    assert_contains(&answer, " 503 Service Unavailable");
    broken.heals("wsgi.py", WELL_WSGI);
    assert_eq!(curl(&[&nginx.url("/")]), "well");
}

#[test]
fn refusals_are_in_the_access_log() {
    const FORMAT: &str = "%n %m %r%Q%q %f %l %s %{Retry-After}o %{HTTP_HOST}e %u %p %{micro}d %R";
    let settings = format!(
        "ping.path = \"/ping\"\naccess = {{ log = \"LOG\", format = \"{FORMAT}\", suppress_path = [\"/ping\"] }}\n"
    );
    let log = directory();
    let path = log.path().join("access.log");
    let settings = settings.replace("LOG", &path.display().to_string());
    let broken = Broken::start("wsgi", "wsgi.py", "import nothing\n", &settings, "");
    broken.refused();
    let params = Params::get(&broken.daemon.dir, "form", "a=b")
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", "3")
        .with("HTTP_HOST", "shop.example")
        .with("REMOTE_USER", "ann");
    assert_contains(&broken.daemon.put("www", &params, b"xyz").text(), " 503 ");
    let ping = Params::get(&broken.daemon.dir, "x", "").with("SCRIPT_NAME", "/ping");
    broken.daemon.ask("www", &ping);
    let lines = || fs::read_to_string(&path).unwrap_or_default();
    let written = until("two lines", || Some(lines()).filter(|it| it.lines().count() >= 2));
    let line = written.lines().nth(1).unwrap_or_else(|| panic!("{written:?}"));
    let words: Vec<&str> = line.split(' ').collect();
    let script = broken.daemon.dir.join("form").display().to_string();
    assert_eq!(
        words[..6],
        ["www", "POST", "/form?a=b", &script, "3", "503"],
        "{line}"
    );
    assert!(words[6].parse::<u64>().is_ok_and(|seconds| seconds > 0), "{line}");
    assert_eq!(words[7..9], ["shop.example", "ann"]);
    let pid = words[9].parse::<u32>().expect("a pid");
    assert!(process::title(pid).contains("503 responder www"), "{line}");
    assert!(words[10].parse::<u64>().is_ok_and(|micros| micros > 0), "{line}");
    assert_eq!(words[11], "-");
    assert_eq!(written.lines().count(), 2, "{written}");
    let numbers = &broken.daemon.status(&["www"])["pools"][0]["numbers"];
    assert_eq!(numbers["requests"]["5xx"], 2, "{numbers}");
    assert!(
        numbers["bytes_out"].as_u64().is_some_and(|bytes| bytes > 300),
        "{numbers}"
    );
    fs::rename(&path, log.path().join("old.log")).expect("rename");
    broken.daemon.signal(Signal::SIGUSR1);
    broken.daemon.wait_for("access log file re-opened");
    assert!(path.exists());
    broken.refused();
    wait_until("a line in the new one", || lines().contains(" 503 "));
    broken.heals("wsgi.py", WELL_WSGI);
    wait_until("a worker's line", || lines().contains(" 200 "));
}

#[test]
fn no_request_is_lost_when_an_application_heals() {
    for _ in 0..4 {
        let broken = Broken::start("wsgi", "wsgi.py", "import nothing\n", "", "");
        broken.refused();
        let heals = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..6)
                .map(|_| {
                    scope.spawn(|| {
                        while !heals.load(Ordering::SeqCst) {
                            let answer = broken.ask();
                            let is_known = answer.body() == "well" || answer.text().contains(" 503 ");
                            assert!(answer.ended && is_known, "{}", answer.text());
                        }
                    })
                })
                .collect();
            let end = scope
                .spawn(|| broken.heals_unchecked("wsgi.py", WELL_WSGI))
                .join();
            heals.store(true, Ordering::SeqCst);
            for client in clients {
                client.join().expect("a client");
            }
            end.expect("the pool heals");
        });
    }
}

#[test]
fn a_developer_sees_the_report() {
    let settings = "friendly_error_pages = true\n";
    let broken = Broken::start("wsgi", "wsgi.py", "import my_module\n", settings, "");
    let nginx = front(&broken);
    let page = curl(&["-i", &nginx.url("/")]);
    assert!(page.contains(" 503 Service Unavailable") && page.contains("Content-Type: text/html"));
    assert_contains(&page, "my_module");
    assert_contains(&page, "line 1, in");
    broken.heals("wsgi.py", WELL_WSGI);
}

#[test]
fn status_and_ping_are_answered_meanwhile() {
    let settings = "status_path = \"/status\"\nping.path = \"/ping\"\n";
    let broken = Broken::start("wsgi", "wsgi.py", "import nothing\n", settings, "");
    broken.refused();
    let ask = |path: &str| {
        let params = Params::get(&broken.daemon.dir, "x", "").with("SCRIPT_NAME", path);
        broken.daemon.ask("www", &params).body()
    };
    assert_eq!(ask("/ping"), "pong");
    assert_contains(&ask("/status"), "pool:");
}

#[test]
fn a_pool_that_is_to_have_workers_heals_without_a_request() {
    let settings = "pm = \"dynamic\"\nmax_children = 2\nmin_spare_servers = 1\nmax_spare_servers = 1\nstart_servers = 1\n";
    let broken = Broken::start("wsgi", "wsgi.py", WELL_WSGI, settings, "");
    broken.daemon.wait_for_workers("www", 1);
    fs::write(broken.root.path().join("wsgi.py"), "import broken\n").expect("write");
    for pid in broken
        .daemon
        .preloaders("www")
        .into_iter()
        .chain(broken.daemon.workers("www"))
    {
        process::signal(pid, Signal::SIGKILL);
    }
    broken.daemon.wait_for("No module named 'broken'");
    until("a refusal", || {
        broken.ask().text().contains(" 503 ").then_some(())
    });
    fs::write(broken.root.path().join("wsgi.py"), WELL_WSGI).expect("write");
    broken.daemon.wait_for_workers("www", 1);
    assert_eq!(broken.ask().body(), "well");
    broken.is_clean();
}

#[test]
fn the_operator_is_told_by_the_status() {
    let broken = Broken::start("wsgi", "wsgi.py", "import nothing\n", "", "");
    let id = broken.refused();
    let show = || broken.daemon.shown(&["status"]);
    let shown = show();
    let (_, line) = shown
        .split_once(&format!("last error {id}, "))
        .expect("the error");
    let (age, line) = line.split_once("s ago, ").expect("its age");
    assert!(age.parse::<u32>().is_ok_and(|seconds| seconds < 60), "{shown}");
    assert_starts(line, "requests are refused: can't load the application");
    broken.heals("wsgi.py", WELL_WSGI);
    assert_contains(
        &show(),
        "s ago, over: the pool serves: can't load the application",
    );
}
