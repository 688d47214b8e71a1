//! Ruby's Rack, in workers that are forked from a loaded application.

use crate::support::prelude::*;

const RACK: &str = "FORKYARD_TEST_RACK";

pub(super) struct Application {
    pub daemon: Daemon,
    pub root: tempfile::TempDir,
}

impl Application {
    pub(super) fn start(files: &[(&str, &str)]) -> Application {
        Application::start_with(files, "pm = \"static\"\nmax_children = 1\n", "")
    }

    /// Starts an application that is one file.
    pub(super) fn of(text: &str) -> Application {
        Application::start(&[("config.ru", text)])
    }

    pub(super) fn start_with(files: &[(&str, &str)], settings: &str, application: &str) -> Application {
        let root = folder(files);
        if let Ok(rack) = std::env::var(RACK) {
            let gemfile = format!("source 'https://rubygems.org'\ngem 'rack', path: '{rack}'\n");
            fs::write(root.path().join("Gemfile"), gemfile).expect("write");
        }
        let application = application_in("rack", root.path(), application);
        let daemon = Daemon::start(|dir| pool(dir, "www", settings, &application));
        Application { daemon, root }
    }

    pub(super) fn linted(app: &str) -> Application {
        let file = format!("require 'uri'\nrequire 'rack/lint'\nuse Rack::Lint\napp = {app}\nrun app\n");
        Application::of(&file)
    }

    fn params(&self, path: &str, query: &str) -> Params {
        Params::get(&self.daemon.dir, path, query)
            .with("CONTENT_TYPE", "")
            .with("CONTENT_LENGTH", "")
    }

    pub(super) fn get(&self, path: &str, query: &str) -> Answer {
        self.request(&self.params(path, query), b"")
    }

    /// The answer; a failing test shows the web server's log.
    fn request(&self, params: &Params, body: &[u8]) -> Answer {
        let answer = self.daemon.client("www").request(params, body).expect("answer");
        eprint!("{}", answer.error_text());
        answer
    }

    fn post(&self, body: &[u8]) -> Answer {
        let params = Params::get(&self.daemon.dir, "post", "")
            .with("REQUEST_METHOD", "POST")
            .with("CONTENT_TYPE", "application/octet-stream")
            .with("CONTENT_LENGTH", &body.len().to_string());
        self.request(&params, body)
    }
}

#[test]
fn an_application_is_loaded_once_and_answers_in_workers() {
    let file = r##"
loaded = Process.pid
run ->(env) {
  body = env["rack.input"].read
  [200, { "content-type" => "text/plain" },
   ["#{env["REQUEST_METHOD"]} #{env["SCRIPT_NAME"]} #{env["PATH_INFO"]} #{env["QUERY_STRING"]} #{body.bytesize} #{loaded != Process.pid}\n"]]
}"##;
    let settings = "pm = \"static\"\nmax_children = 2\n";
    let application = Application::start_with(&[("config.ru", file)], settings, "");
    let params = Params::get(&application.daemon.dir, "some/path", "a=b")
        .with("REQUEST_METHOD", "POST")
        .with("CONTENT_LENGTH", "200000");
    let answer = application.daemon.put("www", &params, &[b'x'; 200_000]);
    assert_eq!(answer.body(), "POST  /some/path a=b 200000 true\n");
    assert_eq!(application.daemon.wait_for_workers("www", 2).len(), 2);
    assert_eq!(application.daemon.preloaders("www").len(), 1);
}

const SHOW: &str = r##"->(env) {
  shown = env.select { |name, value| value.is_a?(String) }
  [200, { "content-type" => "text/plain" }, shown.sort.map { |name, value| "#{name}=#{value}\n" }]
}"##;

#[test]
fn the_environment_is_as_rack_wants_it() {
    let application = Application::linted(SHOW);
    let params = application.params("a b", "x=1&y");
    let params = params.with("REQUEST_URI", "/a%20b?x=1&y");
    let body = application.request(&params, b"").body();
    for line in [
        "PATH_INFO=/a%20b\n",
        "SCRIPT_NAME=\n",
        "QUERY_STRING=x=1&y\n",
        "REQUEST_METHOD=GET\n",
        "rack.url_scheme=http\n",
    ] {
        assert!(body.contains(line), "{line:?} is missing in\n{body}");
    }
    assert_lacks(&body, "CONTENT_LENGTH");
    assert_lacks(&body, "CONTENT_TYPE");
}

#[test]
fn paths_stay_as_the_client_escaped_them_unless_the_web_server_rewrote_them() {
    let application = Application::linted(SHOW);
    let places = [
        ("/a/b", "", "/a%2Fb?q", "", "/a%2Fb"),
        ("/caf\u{e9}", "", "/caf%C3%A9", "", "/caf%C3%A9"),
        ("/new", "", "/old", "", "/new"),
        ("/a", "", "//a/./", "", "/a"),
        ("/100%", "", "/old", "", "/100%25"),
        ("/x", "", "http://localhost/x?y", "", "/x"),
        ("/app", "/a b", "/app/a%20b", "/app", "/a%20b"),
        ("/app/", "/a", "/app/a", "/app", "/a"),
        ("", "/a", "/a", "", "/a"),
        ("", "", "", "", "/"),
    ];
    for (script, info, uri, mount, path) in places {
        let params = application.params("x", "");
        let params = params
            .with("SCRIPT_NAME", script)
            .with("PATH_INFO", info)
            .with("REQUEST_URI", uri);
        let body = application.request(&params, b"").body();
        let wanted = format!("\nSCRIPT_NAME={mount}\n");
        assert!(body.contains(&wanted), "{script} {info} {uri}: {body}");
        let wanted = format!("\nPATH_INFO={path}\n");
        assert!(body.contains(&wanted), "{script} {info} {uri}: {body}");
    }
}

#[test]
fn a_body_is_read_by_pieces_by_lines_and_again() {
    let application = Application::linted(
        r##"->(env) {
  input = env["rack.input"]
  start = input.read(5)
  line = input.gets
  rest = 0
  rest += input.read(100_000).bytesize until rest >= 3_000_000
  lines = 0
  input.rewind if input.respond_to?(:rewind)
  input.each { lines += 1 }
  input.rewind if input.respond_to?(:rewind)
  whole = input.read
  [200, { "content-type" => "text/plain" }, ["#{start} #{line.inspect} #{lines} #{whole.bytesize} #{input.read(1).inspect} #{input.read.inspect}"]]
}"##,
    );
    let mut body = b"start of a line\n".to_vec();
    body.extend((0..3_000_000_u32).map(|at| if at % 1000 == 999 { b'\n' } else { b'x' }));
    let answer = application.post(&body);
    let again = if std::env::var(RACK).is_ok() {
        "0 0"
    } else {
        "3001 3000016"
    };
    let wanted = format!(r#"start " of a line\n" {again} nil """#);
    assert_eq!(answer.body(), wanted);
}

#[test]
fn several_values_are_several_headers_and_illegal_ones_are_left_out() {
    let application = Application::of(
        r##"run ->(env) { [200, {
  "Set-Cookie" => "a=1\nb=2", "X-Many" => ["c", "d"], "X-Bad" => "e\rX-Sneaked: f", "Status" => "500",
  "Transfer-Encoding" => "chunked", "rack.something" => "g", "X-Text" => "ü" }, ["fine"]] }"##,
    );
    let answer = application.get("x", "");
    let head = "Status: 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Many: c\r\nX-Many: d\r\nX-Text: ü\r\n\
                Content-Length: 4\r\n\r\nfine";
    assert_eq!(answer.text(), head);
    assert_contains(&answer.error_text(), "\"X-Bad\"");
}

#[test]
fn what_has_no_body_is_sent_none_and_every_body_is_closed() {
    let application = Application::of(
        r##"
class Body
  def initialize(log) = @log = log
  def each = yield("never")
  def close = $closed += 1
end
$closed = 0
run ->(env) {
  next [200, {}, [$closed.to_s]] if env["PATH_INFO"] == "/closed"
  [env["QUERY_STRING"].to_i, {}, Body.new(nil)]
}"##,
    );
    for (method, status) in [("GET", "204"), ("GET", "304"), ("HEAD", "200")] {
        let params = application.params("x", status).with("REQUEST_METHOD", method);
        let answer = application.request(&params, b"");
        assert_eq!(answer.body(), "", "{method} {status}");
        assert!(answer.text().starts_with(&format!("Status: {status} ")));
    }
    assert_eq!(application.get("x", "200").body(), "never");
    assert_eq!(application.get("closed", "").body(), "4");
}

#[test]
fn files_are_sent_whole_and_in_part() {
    let mut content = vec![b'x'; 1_000_000];
    content[999_999] = b'!';
    let text = String::from_utf8(content).expect("ASCII");
    let file = "require 'uri'\nrequire 'rack/lint'\nuse Rack::Lint\nrun Rack::Files.new(__dir__)\n";
    let application = Application::start(&[("config.ru", file), ("large.txt", &text)]);
    assert!(application.get("large.txt", "").body() == text);
    let params = application.params("large.txt", "");
    let answer = application.request(&params.with("HTTP_RANGE", "bytes=999990-"), b"");
    assert_eq!(answer.body(), "xxxxxxxxx!");
    assert_starts(&answer.text(), "Status: 206 ");
    assert!(application.get("absent", "").text().starts_with("Status: 404 "));
}

#[test]
fn what_an_application_hangs_on_to_is_dead_after_the_request() {
    let application = Application::of(
        r##"
run ->(env) {
  said = begin
    $kept ? $kept["rack.input"].read : "nothing"
  rescue IOError => error
    error.message
  end
  $kept = env
  [200, {}, [said]]
}"##,
    );
    assert_eq!(application.get("x", "").body(), "nothing");
    assert_eq!(application.get("x", "").body(), "the request is over");
}

#[test]
fn what_is_to_be_done_afterwards_is_done_when_the_client_has_its_answer() {
    let application = Application::of(
        r##"
$done = []
run ->(env) {
  next [200, {}, [$done.inspect]] if env["PATH_INFO"] == "/done"
  env["rack.response_finished"] << ->(env, status, headers, error) { $done << status }
  env["rack.after_reply"] << -> { raise "in vain" }
  env["rack.after_reply"] << -> { $done << :after }
  [201, {}, []]
}"##,
    );
    application.get("x", "");
    assert_eq!(application.get("done", "").body(), "[201, :after]");
}

#[test]
fn threads_of_the_application_run_while_its_worker_waits() {
    let application = Application::of(
        r##"
run ->(env) {
  case env["PATH_INFO"]
  when "/start" then Thread.new { sleep 0.01; File.write("ran.tmp", "") ; File.rename("ran.tmp", "ran") }
  end
  [200, {}, ["ok"]]
}"##,
    );
    assert_eq!(application.get("start", "").body(), "ok");
    let ran = application.root.path().join("ran");
    until("the thread", || ran.exists().then_some(()));
}

#[test]
fn a_body_of_rack_3_is_given_a_stream() {
    let application = Application::of(
        r##"
run ->(env) {
  body = ->(stream) {
    stream << "read: " << stream.read
    stream.write("!")
    stream.close
  }
  [200, { "content-type" => "text/plain" }, body]
}"##,
    );
    assert_eq!(application.post(b"this").body(), "read: this!");
}

#[test]
fn a_gemfile_says_which_gems_there_are() {
    if std::env::var(RACK).is_ok() {
        return crate::skip::skip("the applications have another Gemfile with this version of Rack");
    }
    let specification = "Gem::Specification.new do |s|\n  s.name = 'greeter'\n  s.version = '1.2.3'\n  s.summary = 'greets'\n  \
                         s.authors = ['nobody']\n  s.files = []\nend\n";
    let gemfile = "source 'https://rubygems.org'\ngem 'rack'\ngem 'greeter', path: __dir__\n";
    let file = "version = Gem.loaded_specs['greeter'].version.to_s\nrun ->(env) { [200, {}, [version]] }\n";
    let files = [
        ("greeter.gemspec", specification),
        ("Gemfile", gemfile),
        ("config.ru", file),
    ];
    assert_eq!(Application::start(&files).get("x", "").body(), "1.2.3");
}
