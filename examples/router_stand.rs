//! An application pool's router with a minimal master: it forks the router, a 503 responder, and workers with a Rust
//! handler, and inspects directories itself. For `tests/router`.
//!
//! Unlike the real master it restarts a router on demand and hands over the running instances, makes starts fail, and
//! counts them. Its instances report how many bytes they received, stop within an answer, crash in the middle of one,
//! or retire after it.
//!
//! `router_stand FILE.toml DIRECTORY [KEY=VALUE ...]`: the file has one pool, of the runtime `rust`; each directory
//! below the given one is an application. Orders are lines of standard input; events are JSON lines on standard output.

use forkyard_config::{self as config, Applications, Pool};
use forkyard_core::applications::Options;
use forkyard_protocol::reason::Reason;
use forkyard_protocol::router::{AdminRequest, Instance, ToMaster, ToRouter, Unstarted};
use forkyard_router::inspector::protocol::{FoundApplication, InspectReply, InspectRequest, Kind};
use forkyard_router::router::{self, RouterStart};
use forkyard_scoreboard::{Board, header};
use forkyard_sys::fd::{close_all_but, pipe, receive_with, send_with, socket_pair};
use forkyard_sys::process::{self, Side, exit_now, fork};
use forkyard_sys::{pidfd, signal, socket, title};
use forkyard_worker::{GenerationContext, Request, Settings, WorkerContext};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::socket::SockType;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Workers that there may be at a time, those that leave counted.
const SLOTS: u32 = 128;

struct Worker {
    pid: i32,
    process: OwnedFd,
    slot: u32,
    stop_pipe: Option<OwnedFd>,
    /// The router's end of the channel.
    channel: OwnedFd,
    instance: Instance,
    up: bool,
}

struct Stand {
    pool: Pool,
    directory: PathBuf,
    listener: OwnedFd,
    one_user: bool,
    router: i32,
    router_process: OwnedFd,
    master: OwnedFd,
    inspector: OwnedFd,
    board: Board,
    accept_out: OwnedFd,
    accept_in: OwnedFd,
    messages: (OwnedFd, OwnedFd),
    workers: BTreeMap<u64, Worker>,
    next: u64,
    request: u64,
    broken: Vec<PathBuf>,
}

fn say(what: &Value) {
    println!("{what}");
    let _ = std::io::stdout().flush();
}

/// Answers with the application's root, the process and the body's length; the query selects other behavior.
fn handler(root: &Path) -> impl FnMut(&mut Request<'_>) + use<> {
    let root = root.display().to_string();
    move |request: &mut Request<'_>| {
        let query = String::from_utf8_lossy(request.param(b"QUERY_STRING")).into_owned();
        if query == "hello" {
            let _ = request.write_all(b"Content-Type: text/plain\r\n\r\nhello");
            return;
        }
        let mut body = Vec::new();
        let length = std::io::copy(request, &mut body).unwrap_or(0);
        if let Some(millis) = query.strip_prefix("sleep=").and_then(|text| text.parse().ok()) {
            std::thread::sleep(Duration::from_millis(millis));
        }
        if query == "die" {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), Signal::SIGKILL);
        }
        let text = format!(
            "Content-Type: text/plain\r\n\r\n{root} {} {length} {query}\n",
            std::process::id()
        );
        let _ = request.write_all(text.as_bytes());
        if query == "finish" {
            let _ = request.finish();
            std::thread::sleep(Duration::from_millis(300));
        }
        if query == "retire" {
            request.retire();
        }
    }
}

impl Stand {
    fn start_router(&mut self) {
        let (master, theirs) = socket_pair(SockType::SeqPacket).expect("sockets");
        let (inspector, inspector_theirs) = socket_pair(SockType::SeqPacket).expect("sockets");
        let start = RouterStart {
            title: "forkyard: router stand".to_owned(),
            master: theirs,
            messages: self.messages.1.try_clone().expect("a descriptor"),
            heartbeat: None,
            identity: None,
            descriptor_limit: None,
            one_user: self.one_user,
        };
        // SAFETY: this process has one thread; the child leaves by _exit.
        match unsafe { fork() }.expect("fork") {
            Side::Child => {
                signal::reset_in_child();
                let mut keep: Vec<RawFd> = start.descriptors().to_vec();
                keep.sort_unstable();
                // SAFETY: what owned the others is never used again.
                unsafe { close_all_but(&keep) };
                exit_now(router::run(start));
            }
            Side::Parent(pid) => {
                drop(start);
                self.router = pid;
                self.router_process = pidfd::open(pid).expect("pidfd");
            }
        }
        (self.master, self.inspector) = (master, inspector);
        let settings = ToRouter::Settings(Box::new(self.pool.clone()));
        self.tell(
            &settings,
            &[self.listener.as_raw_fd(), inspector_theirs.as_raw_fd()],
        );
        for worker in self.workers.values().filter(|worker| worker.up) {
            let running = ToRouter::Running(worker.instance.clone());
            self.tell(&running, &[worker.channel.as_raw_fd()]);
        }
        self.tell(&ToRouter::Begin { next: self.next }, &[]);
        say(&json!({ "router": self.router }));
    }

    fn tell(&self, what: &ToRouter<forkyard_config::Pool>, descriptors: &[RawFd]) {
        let message = serde_json::to_vec(what).expect("plain values");
        let _ = send_with(self.master.as_fd(), &message, descriptors);
    }

    fn spawn(&mut self, instance: u64, application: PathBuf, restarts: u32) {
        self.next = self.next.max(instance + 1);
        if self.broken.contains(&application) {
            let failed = ToRouter::Failed {
                instance,
                error: format!("error-{instance}"),
                page: None,
            };
            return self.tell(&failed, &[]);
        }
        let used = |slot: &u32| self.workers.values().all(|worker| worker.slot != *slot);
        let slot = (0..SLOTS).find(used).expect("a slot");
        self.board.wipe(slot as usize);
        let (stop_pipe_out, stop_pipe) = pipe(false).expect("a pipe");
        let (channel, theirs) = socket_pair(SockType::SeqPacket).expect("sockets");
        let copy = |fd: &OwnedFd| fd.try_clone().expect("a descriptor");
        let (queue_out, queue_in) = socket_pair(SockType::SeqPacket).expect("sockets");
        let mut pool = self.pool.clone();
        pool.name = format!("stand:{}", application.display());
        // As an application's own pool is.
        let applications = pool.applications.take();
        pool.retirement.told_memory_limit = applications.and_then(|all| all.options.memory_limit);
        let context = GenerationContext {
            settings: Settings {
                pool: pool.into(),
                identity: None,
                started: 0,
                slots: SLOTS,
                descriptor_limit: None,
                log_limit: 1024,
                log_level: forkyard_config::LogLevel::Notice,
                restart_mark: None,
                release: None,
                records_faults: true,
                turn: None,
                process_name: String::new(),
                refork_at: None,
            },
            listener: copy(&queue_out),
            queue_out,
            queue_in,
            accept_notify: copy(&self.accept_in),
            messages: copy(&self.messages.1),
            board_writable: copy(&self.board.memory().writable),
            board_readable: self.board.memory().readable().expect("the scoreboard"),
            http: None,
            group: None,
            lanes: None,
            turns: None,
            access: None,
        };
        let own = WorkerContext {
            slot,
            stop_pipe: stop_pipe_out,
            output: None,
            questions: None,
            channel: Some(theirs),
        };
        // SAFETY: this process has one thread; the child leaves by _exit.
        match unsafe { fork() }.expect("fork") {
            Side::Child => {
                signal::reset_in_child();
                let mut keep = [context.descriptors(), own.descriptors()].concat();
                keep.extend([1, 2]);
                keep.sort_unstable();
                // SAFETY: what owned the others is never used again.
                unsafe { close_all_but(&keep) };
                exit_now(forkyard_worker::run(context, own, &mut handler(&application)));
            }
            Side::Parent(pid) => {
                let worker = Worker {
                    pid,
                    process: pidfd::open(pid).expect("pidfd"),
                    slot,
                    stop_pipe: Some(stop_pipe),
                    channel,
                    instance: Instance {
                        instance,
                        application,
                        restarts,
                        pid,
                        revision: None,
                        origin: None,
                    },
                    up: false,
                };
                say(&json!({ "spawned": pid, "application": worker.instance.application }));
                self.workers.insert(instance, worker);
            }
        }
    }

    fn hear_router(&mut self) {
        let mut buffer = vec![0; 256 * 1024];
        let Ok(received) = receive_with(self.master.as_fd(), &mut buffer, false) else {
            return;
        };
        let Ok(message) = serde_json::from_slice(&buffer[..received.bytes]) else {
            return;
        };
        match message {
            ToMaster::Spawn {
                instance,
                application,
                restarts,
            } => self.spawn(instance, application, restarts),
            ToMaster::Stop { instance, kill } => {
                if let Some(worker) = self.workers.get_mut(&instance) {
                    worker.stop_pipe = None;
                    if kill {
                        let _ = pidfd::send_signal(worker.process.as_fd(), Signal::SIGKILL);
                    }
                }
            }
            ToMaster::Done {
                admin_request,
                result,
            } => say(&json!({ "request": admin_request, "result": result })),
            ToMaster::Refused(_) | ToMaster::Serves { .. } => {}
            ToMaster::Finished => say(&json!({ "finished": true })),
        }
    }

    fn hear_accept(&mut self) {
        let mut words = [0_u8; 256];
        let count = nix::unistd::read(&self.accept_out, &mut words).unwrap_or(0);
        for word in words[..count].chunks_exact(4) {
            let slot = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]) & !(1 << 31);
            let found = self.workers.iter_mut().find(|(_, worker)| worker.slot == slot);
            if let Some((_, worker)) = found.filter(|(_, worker)| !worker.up) {
                worker.up = true;
                let up = ToRouter::Up(worker.instance.clone());
                let channel = worker.channel.as_raw_fd();
                self.tell(&up, &[channel]);
            }
        }
    }

    fn inspect(&mut self) {
        let mut buffer = vec![0; 64 * 1024];
        let Ok(received) = receive_with(self.inspector.as_fd(), &mut buffer, false) else {
            return;
        };
        let Ok(look) = serde_json::from_slice::<InspectRequest>(&buffer[..received.bytes]) else {
            return;
        };
        let seen = InspectReply {
            number: look.number,
            found: found(&look.root, &self.directory),
            is_unknown: false,
            refusal: None,
        };
        let message = serde_json::to_vec(&seen).expect("plain values");
        let _ = send_with(self.inspector.as_fd(), &message, &[]);
    }

    fn reap(&mut self) {
        while let Some((pid, _)) = process::reap() {
            let of = self.workers.iter().find(|(_, worker)| worker.pid == pid);
            if let Some(instance) = of.map(|(instance, _)| *instance) {
                self.workers.remove(&instance);
                self.tell(&ToRouter::Gone { instance }, &[]);
                say(&json!({ "gone": pid }));
            } else if pid == self.router {
                say(&json!({ "router_gone": pid }));
            }
        }
    }

    /// Executes one order; `false` ends the program.
    fn obey(&mut self, line: &str) -> bool {
        let mut words = line.split_whitespace();
        let (word, rest): (_, Vec<&str>) = (words.next().unwrap_or_default(), words.collect());
        let number = || {
            rest.first()
                .and_then(|text| text.parse::<i32>().ok())
                .unwrap_or(0)
        };
        let path = || PathBuf::from(rest.first().copied().unwrap_or_default());
        let request = match word {
            "view" => AdminRequest::View,
            "restart" => AdminRequest::Restart {
                application: path(),
                rolling: rest.get(1).map(|text| *text == "rolling"),
                unstarted: Unstarted::Stays,
            },
            "detach" => AdminRequest::Detach { pid: number() },
            "disable" | "enable" => AdminRequest::Disable {
                pid: number(),
                enable: word == "enable",
            },
            "max" => AdminRequest::SetMax {
                max: number().unsigned_abs(),
            },
            "take" => AdminRequest::Take {
                of: rest.first().copied().unwrap_or_default().to_owned(),
                wait: None,
            },
            "return" => AdminRequest::Return {
                lease: rest.first().and_then(|text| text.parse().ok()).unwrap_or(0),
                ok: rest.get(1) != Some(&"failed"),
            },
            "start-router" => {
                self.start_router();
                return true;
            }
            "finish" => {
                self.tell(&ToRouter::Finish(None), &[]);
                return true;
            }
            "break" => {
                self.broken.push(path());
                self.request += 1;
                say(&json!({ "request": self.request, "result": { "Ok": null } }));
                return true;
            }
            "mend" => {
                self.broken.clear();
                return true;
            }
            _ => return false,
        };
        self.request += 1;
        self.tell(
            &ToRouter::AdminRequest {
                admin_request: self.request,
                what: request,
            },
            &[],
        );
        true
    }

    fn serve(&mut self) {
        let mut line = Vec::new();
        loop {
            let stdin = std::io::stdin();
            let mut fds = vec![stdin.as_fd(), self.master.as_fd(), self.inspector.as_fd()];
            fds.extend([
                self.accept_out.as_fd(),
                self.messages.0.as_fd(),
                self.router_process.as_fd(),
            ]);
            fds.extend(self.workers.values().map(|worker| worker.process.as_fd()));
            let mut about: Vec<PollFd<'_>> = fds
                .into_iter()
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                .collect();
            let _ = poll(&mut about, PollTimeout::NONE);
            let ready: Vec<bool> = about.iter().map(|fd| fd.any().unwrap_or(true)).collect();
            drop(about);
            self.hear_accept();
            if ready[1] {
                self.hear_router();
            }
            if ready[2] {
                self.inspect();
            }
            if ready[4] {
                let mut lines = vec![0; 64 * 1024];
                let count = nix::unistd::read(&self.messages.0, &mut lines).unwrap_or(0);
                let _ = std::io::stderr().write_all(&lines[..count]);
            }
            if ready[5..].contains(&true) {
                self.reap();
                if !process::exists(self.router) {
                    // Never ready again.
                    self.router_process = self.accept_in.try_clone().expect("a descriptor");
                    self.master = self.accept_in.try_clone().expect("a descriptor");
                    self.inspector = self.accept_in.try_clone().expect("a descriptor");
                }
            }
            if ready[0] {
                let mut byte = [0; 1];
                match nix::unistd::read(&stdin, &mut byte) {
                    Ok(1) if byte[0] != b'\n' => line.push(byte[0]),
                    Ok(1) => {
                        let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
                        if !self.obey(&text) {
                            return;
                        }
                    }
                    _ => return,
                }
            }
        }
    }
}

fn found(root: &Path, directory: &Path) -> Result<FoundApplication, Reason> {
    let real = std::fs::canonicalize(root).map_err(|error| error.to_string())?;
    if !real.starts_with(directory) || real == directory {
        return Err(Reason("it is not below the pool's directory".to_owned()));
    }
    let restart = std::fs::metadata(real.join("tmp/restart.txt")).ok();
    let stamp = |data: std::fs::Metadata| {
        let seconds = i128::from(data.mtime()) * 1_000_000_000;
        (seconds + i128::from(data.mtime_nsec()), data.ino())
    };
    Ok(FoundApplication {
        kind: Kind::Cgi,
        startup_file: None,
        python: None,
        owner: (0, 0),
        settings: None,
        restart: restart.map(stamp),
        always_restart: real.join("tmp/always_restart.txt").exists(),
        link: None,
        revision: None,
        origin: None,
        root: real,
    })
}

/// The settings of a test, as `KEY=VALUE`.
fn applications(directory: &Path, arguments: &[String]) -> (Applications, bool) {
    let number = |name: &str| {
        let value = arguments
            .iter()
            .find_map(|one| one.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|text| text.parse::<u64>().ok())
    };
    let count = |name| {
        number(name)
            .and_then(|number| u32::try_from(number).ok())
            .and_then(std::num::NonZeroU32::new)
    };
    let options = Options {
        max_per_app: count("max_per_app"),
        max_requests: count("max_requests"),
        memory_limit: number("memory_limit"),
        max_request_queue_size: count("queue").or(std::num::NonZeroU32::new(100)),
        stop_timeout: Duration::from_secs(10),
        ..Options::default()
    };
    let settings = Applications {
        reserve: 0,
        concurrency: None,
        user_switching: true,
        user_mounts: false,
        directories: vec![directory.to_owned()],
        root_parameter: "APP_ROOT".to_owned(),
        max: count("max").unwrap_or(std::num::NonZeroU32::MIN),
        max_spawning: std::num::NonZeroU32::new(8).unwrap_or(std::num::NonZeroU32::MIN),
        options,
        restart_dir: None,
        groups: std::collections::BTreeMap::new(),
        stat_throttle_rate: Duration::from_millis(number("throttle_ms").unwrap_or(10_000)),
        max_request_queue_time: number("queue_ms").map(Duration::from_millis),
        forget_after: Duration::from_millis(number("forget_ms").unwrap_or(3_600_000)),
        min_uid: 0,
        default_user: None,
        releases: None,
        router_user: None,
    };
    (settings, number("one_user") != Some(0))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    title::prepare();
    signal::ignore_pipe();
    let arguments: Vec<String> = std::env::args().collect();
    let [_, file, directory, rest @ ..] = &arguments[..] else {
        return Err("usage: router_stand FILE.toml DIRECTORY [KEY=VALUE ...]".into());
    };
    let mut pool = config::load(Path::new(file))?.config.pools[0].as_ref().clone();
    let directory = std::fs::canonicalize(directory)?;
    let (settings, one_user) = applications(&directory, rest);
    pool.applications = Some(Box::new(settings));
    let config::Address::Unix(path) = &pool.listen.address else {
        return Err("the pool listens on a unix socket".into());
    };
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    socket::listen(&OwnedFd::from(listener.try_clone()?), 4096, "the pool's socket")?;
    listener.set_nonblocking(true)?;
    let (accept_out, accept_in) = pipe(true)?;
    let messages = socket_pair(SockType::Stream)?;
    let null = || forkyard_sys::fd::null();
    let board = Board::create("stand", SLOTS as usize)?;
    for slot in 0..SLOTS as usize {
        header::set_used(board.header(), slot, true);
    }
    let mut stand = Stand {
        pool,
        directory,
        listener: listener.into(),
        one_user,
        router: 0,
        router_process: null()?,
        master: null()?,
        inspector: null()?,
        board,
        accept_out,
        accept_in,
        messages,
        workers: BTreeMap::new(),
        next: 1,
        request: 0,
        broken: Vec::new(),
    };
    stand.start_router();
    stand.serve();
    for worker in stand.workers.values() {
        let _ = pidfd::send_signal(worker.process.as_fd(), Signal::SIGKILL);
    }
    if process::exists(stand.router) {
        let _ = process::send_signal(stand.router, Signal::SIGKILL);
    }
    Ok(())
}
