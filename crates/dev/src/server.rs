//! Accepts connections, answers requests and handles exit.

use crate::configuration::{self, Paths};
use crate::daemon::{self, Daemon};
use crate::gateway::{self, Begun, Upload};
use crate::hosts::Hosts;
use crate::page::{self, page};
use crate::params::{self, Ends, params};
use crate::reply::{self, Reply, Served, WEBSOCKET};
use crate::site::{self, Target};
use crate::subject::{self, Subject, SubjectError, What};
use crate::watch::Watch;
use crate::{Arguments, DevFailure, port};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Mutex;

/// How often to check for changes while no request comes; editors save several files in a row.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// The most bytes of a collected body, for programs that need its length.
const MOST_COLLECTED: usize = 64 << 20;
const MOST_OF_ERROR: usize = 256;
const MOST_OF_REPORT: usize = 4 << 20;
const OWN_ERROR: &[u8] = b"Internal Server Error\n";
const PHP_ERRORS: [&str; 2] = ["PHP Parse error:", "PHP Fatal error:"];

struct Site {
    paths: Paths,
    hosts: Hosts,
    root: PathBuf,
    state: Mutex<DevState>,
}

struct DevState {
    watch: Watch,
    subject: Result<Subject, Arc<SubjectError>>,
}

pub(crate) async fn run(arguments: &Arguments, subject: Subject) -> Result<(), DevFailure> {
    let listener = listen(SocketAddr::new(arguments.host, arguments.port)).await?;
    let address = listener
        .local_addr()
        .map_err(|error| DevFailure::Failed(error.to_string()))?;
    let watch = Watch::new(&subject.root).map_err(|errno| {
        DevFailure::Failed(format!(
            "can't watch files: {errno}; is fs.inotify.max_user_instances reached?"
        ))
    })?;
    let private = tempfile::Builder::new().prefix("forkyard-dev-").tempdir();
    let private =
        private.map_err(|error| DevFailure::Failed(format!("can't make a private directory: {error}")))?;
    let paths = Paths::new(private.path());
    let programs = daemon::programs()?;
    let php = match subject.is_php() {
        true => Some(daemon::newest_php(&programs).await?),
        false => None,
    };
    let said = |name: &str, usual: &str| std::env::var(name).unwrap_or_else(|_| usual.to_owned());
    let env = configuration::DEVELOPMENT.map(|(name, usual)| (name, said(name, usual)));
    let text = configuration::write(&subject, &paths, php.as_deref(), &env);
    std::fs::write(&paths.configuration, text)
        .map_err(|error| DevFailure::Failed(format!("{}: {error}", paths.configuration.display())))?;
    let mut ends = Ending::new()?;
    let mut daemon = tokio::select! {
        started = Daemon::start(&programs, &paths) => started?,
        () = ends.wait() => return Ok(()),
    };
    println!("{}: {}", subject.root.display(), subject.describe());
    println!("http://{address}/   (Ctrl-C ends it)");
    let site = Arc::new(Site {
        paths,
        hosts: Hosts::new(&arguments.allowed_host),
        root: subject.root.clone(),
        state: Mutex::new(DevState {
            watch,
            subject: Ok(subject),
        }),
    });
    let following = tokio::spawn(follow_changes(Arc::clone(&site)));
    let mut is_short = false;
    let outcome = loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, client)) => {
                    is_short = false;
                    serve_connection(Arc::clone(&site), stream, Ends { client, server: address });
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_short, true) {
                        eprintln!("forkyard: connections wait: {error}");
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            },
            status = daemon.ended() => {
                let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                break Err(DevFailure::Failed(format!("the daemon has ended ({how})")));
            }
            () = ends.wait() => break Ok(()),
        }
    };
    following.abort();
    daemon.stop().await;
    outcome
}

async fn listen(address: SocketAddr) -> Result<TcpListener, DevFailure> {
    TcpListener::bind(address).await.map_err(|error| {
        let port = address.port();
        DevFailure::Refused(match error.kind() {
            io::ErrorKind::AddrInUse => {
                let who = port::holder(port).map_or_else(
                    || "another process".to_owned(),
                    |(pid, name)| format!("{name} (pid {pid})"),
                );
                let other = port.checked_add(1).unwrap_or(8000);
                format!("{who} already listens on {address}; end it, or take another port: --port {other}")
            }
            io::ErrorKind::PermissionDenied => {
                format!("only root may listen on port {port}; take one from 1024 on: --port 8000")
            }
            io::ErrorKind::AddrNotAvailable => {
                format!(
                    "this machine has no address {}; leave --host out, or name one that it has",
                    address.ip()
                )
            }
            _ => format!("can't listen on {address}: {error}"),
        })
    })
}

struct Ending([tokio::signal::unix::Signal; 3]);

impl Ending {
    fn new() -> Result<Ending, DevFailure> {
        let wanted = |kind| {
            signal(kind).map_err(|error| DevFailure::Failed(format!("can't wait for signals: {error}")))
        };
        Ok(Ending([
            wanted(SignalKind::interrupt())?,
            wanted(SignalKind::terminate())?,
            wanted(SignalKind::hangup())?,
        ]))
    }

    async fn wait(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

async fn follow_changes(site: Arc<Site>) {
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let _ = site.refresh().await;
    }
}

fn serve_connection(site: Arc<Site>, stream: TcpStream, ends: Ends) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { site.serve(request, ends).await }
    });
    tokio::spawn(async move {
        let mut builder = hyper::server::conn::http1::Builder::new();
        let _ = builder
            .half_close(false)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
    });
}

impl Site {
    async fn refresh(&self) -> Result<Subject, Arc<SubjectError>> {
        let mut state = self.state.lock().await;
        let changed = state.watch.changed();
        if let Some(trouble) = state.watch.take_trouble() {
            eprintln!("forkyard: {trouble}");
        }
        let Some(changed) = changed else {
            return state.subject.clone();
        };
        let seen = subject::inspect(&self.root);
        let seen = match (&state.subject, seen) {
            (Ok(before), Ok(now)) if needs_other_configuration(before, &now) => Err(SubjectError::Changed {
                root: self.root.clone(),
                now: now.describe(),
                before: before.describe(),
            }),
            (_, seen) => seen,
        };
        if let Err(problem) = &seen {
            eprintln!("forkyard: {problem}");
        }
        state.subject = seen.map_err(Arc::new);
        let is_script = changed.extension().is_some_and(|ending| ending == "php");
        let is_application =
            matches!(&state.subject, Ok(subject) if matches!(subject.what, What::Application { .. }));
        let is_read_anew = matches!(&state.subject, Ok(subject) if subject.is_php() && is_script);
        if is_application && !is_read_anew {
            println!("{} has changed: reloading the application", changed.display());
            if let Err(problem) = daemon::restart(&self.paths.control, &self.root).await {
                eprintln!("forkyard: {problem}");
            }
        }
        state.subject.clone()
    }

    async fn serve(&self, request: Request<Incoming>, ends: Ends) -> Served {
        let begin = Instant::now();
        let line = format!("{} {}", request.method(), request.uri());
        let reply = match self.hosts.refusal(request.uri(), request.headers()) {
            Some(refusal) => refusal,
            None => self.reply(request, ends).await,
        };
        println!(
            "{line} {} {} ms",
            reply.status().as_u16(),
            begin.elapsed().as_millis()
        );
        Ok(reply)
    }

    async fn reply(&self, request: Request<Incoming>, ends: Ends) -> Reply {
        match self.refresh().await {
            Ok(subject) => self.answer(&subject, request, ends).await,
            Err(problem) => {
                let remedy = "The text below has it. Load this page again when it is done.";
                page(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "There is no application",
                    remedy,
                    &problem.to_string(),
                )
            }
        }
    }

    async fn answer(&self, subject: &Subject, request: Request<Incoming>, ends: Ends) -> Reply {
        let Some(path) = site::decoded(request.uri().path()) else {
            let path = request.uri().path();
            return page(
                StatusCode::BAD_REQUEST,
                "This can't be the path of a URL",
                "",
                path,
            );
        };
        let is_reading = [Method::GET, Method::HEAD].contains(request.method());
        let target = site::target(subject, &path, is_reading);
        match &target {
            Target::File(_) if !is_reading => page(
                StatusCode::METHOD_NOT_ALLOWED,
                "A file can be read, and nothing else",
                "",
                &path,
            ),
            Target::File(file) => reply::file(file, request.method() == Method::GET)
                .await
                .unwrap_or_else(|error| missing(&path, &error.to_string())),
            Target::Directory => {
                let query = request
                    .uri()
                    .query()
                    .map_or_else(String::new, |query| format!("?{query}"));
                reply::moved(&format!("{}/{query}", request.uri().path()))
            }
            Target::Missing => missing(&path, "There is no such file"),
            Target::Outside(file) => page(
                StatusCode::FORBIDDEN,
                "This link leads out of the application's directory",
                "Copy the file, or have the web server serve it where the application is deployed.",
                &file.display().to_string(),
            ),
            Target::Script { .. } | Target::Application => {
                let passed = self.pass(subject, &target, &path, request, ends).await;
                passed.unwrap_or_else(|error| {
                    eprintln!("forkyard: {path}: {error}");
                    let remedy = "The terminal shows the application's output.";
                    page(
                        StatusCode::BAD_GATEWAY,
                        "The application gave no answer that a browser could be shown",
                        remedy,
                        &error.to_string(),
                    )
                })
            }
        }
    }

    async fn pass(
        &self,
        subject: &Subject,
        target: &Target,
        path: &str,
        mut request: Request<Incoming>,
        ends: Ends,
    ) -> io::Result<Reply> {
        let tunnel = wants_websocket(&request, subject).then(|| hyper::upgrade::on(&mut request));
        let (head, body) = request.into_parts();
        if let Some(tunnel) = tunnel {
            let params = params::with_upgrade(params(subject, target, &head, path, None, ends));
            let begun = gateway::ask(&self.paths.socket, &params, Upload::Tunnel(tunnel)).await?;
            return Ok(begun.reply());
        }
        let known = body.size_hint().exact();
        let (length, upload) = match known {
            None if needs_length(subject) => {
                let collected = Limited::new(body, MOST_COLLECTED).collect().await;
                let bytes = collected.map_err(io::Error::other)?.to_bytes();
                (Some(bytes.len() as u64), Upload::Whole(bytes))
            }
            Some(0) if !head.headers.contains_key("content-length") => (None, Upload::Coming(body)),
            known => (known, Upload::Coming(body)),
        };
        let params = params(subject, target, &head, path, length, ends);
        let mut begun = gateway::ask(&self.paths.socket, &params, upload).await?;
        if let Some(text) = exception(subject, &mut begun).await {
            return Ok(page::raised(&text, &subject.root));
        }
        let page = match is_report(&begun) {
            true => page::completed(
                &begun.collect(MOST_OF_REPORT).await,
                &subject.root,
                &self.paths.control,
            ),
            false => None,
        };
        Ok(match page {
            Some(page) => reply::html(begun.head.status, page),
            None => begun.reply(),
        })
    }
}

/// Whether the client requests a WebSocket and the application supports it (RFC 6455 section 4.2.1).
fn wants_websocket(request: &Request<Incoming>, subject: &Subject) -> bool {
    let has = |name: header::HeaderName, word: &str| {
        let values = request.headers().get_all(name).into_iter();
        let mut texts = values.filter_map(|value| value.to_str().ok());
        texts.any(|text| text.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
    };
    let can = match &subject.what {
        What::Application { kind, .. } => kind.traits().serves_http(),
        What::Documents => false,
    };
    can && request.method() == Method::GET
        && has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, WEBSOCKET)
}

fn is_report(begun: &Begun) -> bool {
    let kind = begun
        .head
        .headers
        .get("content-type")
        .and_then(|kind| kind.to_str().ok());
    begun.head.status == StatusCode::SERVICE_UNAVAILABLE
        && kind.is_some_and(|kind| kind.starts_with("text/html"))
}

async fn exception(subject: &Subject, begun: &mut Begun) -> Option<String> {
    if subject.is_php() {
        let errors = begun.errors();
        return PHP_ERRORS
            .iter()
            .any(|error| errors.contains(error))
            .then_some(errors);
    }
    if begun.head.status != StatusCode::INTERNAL_SERVER_ERROR {
        return None;
    }
    let is_own = begun.collect(MOST_OF_ERROR).await == OWN_ERROR;
    let errors = begun.errors();
    (is_own && !errors.trim().is_empty()).then_some(errors)
}

fn needs_other_configuration(before: &Subject, now: &Subject) -> bool {
    let is_application = |subject: &Subject| matches!(subject.what, What::Application { .. });
    before.is_php() != now.is_php() || is_application(before) != is_application(now)
}

fn needs_length(subject: &Subject) -> bool {
    match &subject.what {
        What::Documents => true,
        What::Application { kind, .. } => kind.traits().needs_length,
    }
}

fn missing(path: &str, why: &str) -> Reply {
    page(StatusCode::NOT_FOUND, why, "", path)
}
