//! Ruby applications behind a real nginx, by the block of docs/reference/runtimes.md.

use super::rack::Application;
use crate::support::prelude::*;

fn block(application: &Application) -> String {
    let document = include_str!("../../../docs/reference/runtimes.md");
    let (_, chapter) = document.split_once("\n## Rack\n").expect("a chapter");
    let (_, block) = chapter.split_once("```nginx\nserver {\n").expect("a block");
    let (block, _) = block.split_once("\n}\n```").expect("its end");
    let socket = application.daemon.socket("www");
    let root = application.root.path().display().to_string();
    block
        .replace("    listen 80;\n", "")
        .replace("/run/forkyard-app.sock", &socket.display().to_string())
        .replace("/srv/app", &root)
        .replace("include fastcgi_params", "include /etc/nginx/fastcgi_params")
}

fn site(files: &[(&str, &str)], threads: u32) -> (Application, Nginx) {
    let settings = "pm = \"static\"\nmax_children = 2\n";
    let application = Application::start_with(files, settings, &format!("threads = {threads}\n"));
    let nginx = Nginx::start(&block(&application), "");
    (application, nginx)
}

const SINATRA: &str = r##"
require "sinatra/base"

class Site < Sinatra::Base
  enable :sessions
  set :session_secret, "0123456789abcdef" * 8
  set :show_exceptions, false

  get("/") { "count #{session[:count] = session.fetch(:count, 0) + 1}" }
  post("/form") { "#{params["name"]} #{params["many"].join("+")} #{request.ip} #{request.url}" }
  post("/upload") { "#{params["file"]["filename"]} #{params["file"]["tempfile"].read.sum}" }
  get("/go") { redirect to("/here") }
  get("/raise") { raise "it broke" }
  get("/caf\u00e9/*") { |rest| "at #{rest}" }
  get("/stream") do
    headers "X-Accel-Buffering" => "no"
    stream do |out|
      5.times do |number|
        sleep 0.001 while number.positive? && !File.exist?("go#{number}")
        out << "part #{number}\n"
      end
    end
  end
end
run Site
"##;

fn sinatra(threads: u32) -> (Application, Nginx) {
    site(&[("config.ru", SINATRA)], threads)
}

#[test]
fn a_sinatra_application_has_sessions_forms_and_redirects() {
    [1, 4].into_iter().for_each(use_sinatra);
}

fn use_sinatra(threads: u32) {
    let (application, nginx) = sinatra(threads);
    let jar = application.daemon.dir.join("cookies");
    let jar = jar.to_str().expect("text");
    for count in 1..4 {
        let said = curl(&["-b", jar, "-c", jar, &nginx.url("/")]);
        assert_eq!(said, format!("count {count}"));
    }
    let said = curl(&["-d", "name=a%20b&many[]=c&many[]=d", &nginx.url("/form")]);
    let port = format!(":{}", nginx.port);
    assert_eq!(said.replace(&port, ""), "a b c+d 127.0.0.1 http://127.0.0.1/form");
    let head = curl(&["-i", &nginx.url("/go")]);
    assert_starts(&head, "HTTP/1.1 302 Found\r\n");
    let location = "\r\nLocation: http://127.0.0.1/here\r\n";
    assert!(head.replace(&port, "").contains(location), "{head}");
    assert_eq!(curl(&[&nginx.url("/caf%C3%A9/a%2Fb")]), "at a/b");
    let head = curl(&["-i", &nginx.url("/raise")]);
    assert_starts(&head, "HTTP/1.1 500 Internal Server Error\r\n");
    assert_contains(&curl(&["-I", &nginx.url("/")]), "\r\nContent-Length: 7\r\n");
}

#[test]
fn a_sinatra_application_is_given_files() {
    for threads in [1, 4] {
        let (application, nginx) = sinatra(threads);
        let file = application.daemon.dir.join("large.bin");
        fs::write(&file, vec![1; 3_000_000]).expect("write");
        let part = format!("file=@{}", file.display());
        assert_eq!(curl(&["-F", &part, &nginx.url("/upload")]), "large.bin 50880");
    }
}

const CLASSIC: &str = r##"
require "sinatra"
set :logging, true
enable :dump_errors

get("/") { logger.info("a line of the logger"); "classic" }
get("/raise") { raise "it broke" }
run Sinatra::Application
"##;

#[test]
fn a_classic_sinatra_application_serves_and_logs() {
    for (lint, threads) in [("", 1), ("require \"rack/lint\"\nuse Rack::Lint\n", 4)] {
        let (application, nginx) = site(&[("config.ru", &format!("{lint}{CLASSIC}"))], threads);
        assert_eq!(curl(&[&nginx.url("/")]), "classic");
        let head = curl(&["-i", &nginx.url("/raise")]);
        assert_starts(&head, "HTTP/1.1 500 Internal Server Error\r\n");
        let log = nginx.errors();
        for wanted in ["a line of the logger", "\"GET / HTTP/1.", "it broke"] {
            assert!(log.contains(wanted), "{wanted} is missing: {log}");
            wait_until(wanted, || application.daemon.log().contains(wanted));
        }
    }
}

/// Each part is written once the client has the previous one: a buffered part would hang the test.
#[test]
fn a_sinatra_application_streams() {
    [1, 4].into_iter().for_each(stream_from_sinatra);
}

fn stream_from_sinatra(threads: u32) {
    let (application, nginx) = sinatra(threads);
    let mut stream = TcpStream::connect(("127.0.0.1", nginx.port)).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
    stream
        .write_all(b"GET /stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("send");
    let mut lines = BufReader::new(stream).lines();
    for part in 0..5 {
        let wanted = format!("part {part}");
        let seen = lines.by_ref().map_while(Result::ok).any(|line| line == wanted);
        assert!(seen, "{wanted} did not come");
        fs::write(application.root.path().join(format!("go{}", part + 1)), "").expect("write");
    }
}

const RAILS: &str = r##"
require "action_controller/railtie"

class Site < Rails::Application
  config.eager_load = true
  config.secret_key_base = "0123456789abcdef" * 8
  config.logger = Logger.new($stderr)
  config.hosts.clear
  routes.append do
    root to: "pages#show"
    post "/save", to: "pages#save"
    get "/live", to: "pages#live"
  end
end

class PagesController < ActionController::Base
  include ActionController::Live
  skip_forgery_protection raise: false

  def show
    session[:seen] = session.fetch(:seen, 0) + 1
    render inline: "<p><%= session[:seen] %> <%= Rails.env %></p>"
  end

  def save = render(json: params.permit(:name).to_h)

  def live
    3.times { |number| response.stream.write("live #{number}\n") }
  ensure
    response.stream.close
  end
end
Site.initialize!
run Rails.application
"##;

#[test]
fn a_rails_application_has_sessions_json_and_live_streams() {
    [1, 4].into_iter().for_each(use_rails);
}

fn use_rails(threads: u32) {
    let (application, nginx) = site(&[("config.ru", RAILS)], threads);
    let jar = application.daemon.dir.join("cookies");
    let jar = jar.to_str().expect("text");
    for count in 1..3 {
        let said = curl(&["-b", jar, "-c", jar, &nginx.url("/")]);
        assert_eq!(said, format!("<p>{count} production</p>"));
    }
    let json = ["-H", "Content-Type: application/json", "-d", r#"{"name":"ü"}"#];
    let said = curl(&[&json[..], &[&nginx.url("/save")]].concat());
    assert_eq!(said, r#"{"name":"ü"}"#);
    assert_eq!(curl(&[&nginx.url("/live")]), "live 0\nlive 1\nlive 2\n");
    let head = curl(&["-i", &nginx.url("/nowhere")]);
    assert_starts(&head, "HTTP/1.1 404 Not Found\r\n");
}

#[test]
fn a_rails_application_serves_many_from_a_worker_with_threads() {
    let (application, nginx) = site(&[("config.ru", RAILS)], 5);
    let clients: Vec<_> = (0..12)
        .map(|number| {
            let jar = application.daemon.dir.join(format!("cookies{number}"));
            let (home, live) = (nginx.url("/"), nginx.url("/live"));
            std::thread::spawn(move || {
                let jar = jar.to_str().expect("text");
                for count in 1..6 {
                    let said = curl(&["-b", jar, "-c", jar, &home]);
                    assert_eq!(said, format!("<p>{count} production</p>"));
                    assert_eq!(curl(&[&live]), "live 0\nlive 1\nlive 2\n");
                }
            })
        })
        .collect();
    clients
        .into_iter()
        .for_each(|client| client.join().expect("a client"));
    assert_lacks(&nginx.errors(), "[error]");
}
