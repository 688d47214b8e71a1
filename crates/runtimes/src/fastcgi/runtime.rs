//! The FastCGI runtime: answers requests through the program.

use super::exchange::{Exchange, ExchangeOutcome, PIECE_BYTES};
use super::program::Recipe;
use super::program_socket::ProgramSocket;
use super::supervisor::{Means, Refusal, Supervisor};
use crate::complaints::Complaints;
use crate::script_roots::Within;
use crate::{is_idempotent, refuse};
use fastcgi::ProtocolStatus;
use forkyard_config::{self as config, Pool, StartCommand};
use forkyard_spawn::effects::own_account;
use forkyard_spawn::plan::{Account, Kind, Plan};
use forkyard_sys::Error;
use forkyard_sys::process::Ended;
use forkyard_worker::{Backend, ClientGone, RefusalCause, Request, Runtime, Unrun};
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const SHELL: &str = "/bin/sh";
/// A program's connections close before its exit is visible.
const END_TIMEOUT: Duration = Duration::from_millis(50);
const TRIES: u32 = 3;

const BAD_GATEWAY: &str = "502 Bad Gateway";
const UNAVAILABLE: &str = "503 Service Unavailable";

/// A runtime with a FastCGI program of its own.
#[derive(Debug)]
pub struct FastCgi {
    pool: String,
    catches_output: bool,
    shows_report: bool,
    stop_timeout: Duration,
    settings: config::FastCgi,
    within: Option<Within>,
    has_elder: bool,
    reports: Option<OwnedFd>,
    socket: Option<ProgramSocket>,
    supervisor: Option<Supervisor>,
    buffer: Vec<u8>,
}

impl FastCgi {
    /// Creates the runtime. Failed starts are reported to the master through `reports`.
    pub fn new(pool: &Pool, settings: config::FastCgi, reports: Option<OwnedFd>) -> FastCgi {
        FastCgi {
            pool: pool.name.clone(),
            catches_output: pool.logs.catch_workers_output,
            shows_report: pool.pages.friendly_error_pages,
            stop_timeout: pool.replacement.stop_timeout,
            within: settings
                .script_root
                .as_ref()
                .map(|root| Within::new(&root.path, &root.names)),
            settings,
            has_elder: false,
            reports,
            socket: None,
            supervisor: None,
            buffer: Vec::new(),
        }
    }

    fn supervisor(&mut self) -> Option<&mut Supervisor> {
        if let (None, Some(socket)) = (&self.supervisor, self.socket.take()) {
            match Supervisor::new(self.means(), socket) {
                Ok(supervisor) => self.supervisor = Some(supervisor),
                Err(error) => log::error!("{error}"),
            }
        }
        self.supervisor.as_mut()
    }

    fn means(&mut self) -> Means {
        let root = self.settings.root.clone();
        let root = root
            .or_else(|| std::env::current_dir().ok())
            .unwrap_or(PathBuf::from("/"));
        let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let path = environment.iter().find(|(name, _)| name == "PATH");
        let plan = plan(&self.pool, &self.settings, root.clone(), own_account());
        let text = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
        let arguments = arguments(&self.settings.command).into_iter();
        Means {
            shows_report: self.shows_report,
            reports: self.reports.take(),
            stop_timeout: self.stop_timeout,
            path: path.map_or(String::new(), |(_, value)| value.to_string_lossy().into_owned()),
            recipe: Recipe {
                arguments: arguments.map(|word| text(word.into_bytes())).collect(),
                environment: environment
                    .into_iter()
                    .map(|(name, value)| text([name.as_bytes(), b"=", value.as_bytes()].concat()))
                    .collect(),
                directory: text(root.into_os_string().into_vec()),
            },
            plan: Arc::new(plan),
            catches_output: self.catches_output,
            has_elder: self.has_elder,
        }
    }

    /// Returns why a request's script must not run.
    fn is_elsewhere(&self, request: &Request<'_>) -> Option<&'static str> {
        let param = |name: &str| request.params().get(name.as_bytes());
        let named = || {
            ["SCRIPT_FILENAME", "PATH_TRANSLATED"]
                .into_iter()
                .filter_map(param)
        };
        let excludes = |within: &Within| named().any(|path| within.excludes(path, param));
        if self.within.as_ref().is_some_and(excludes) {
            return Some("the script is outside application.script_root");
        }
        let leads_out = named().any(|path| request.leads_out(path));
        leads_out.then_some("the script leads out of its release and release_shared")
    }

    fn serve(&mut self, request: &mut Request<'_>) -> Result<(), ClientGone> {
        if let Some(why) = self.is_elsewhere(request) {
            let unrun = Unrun::new(RefusalCause::Outside, request.param(b"SCRIPT_FILENAME"));
            request.refuse_script(&unrun);
            return refuse(request, "403 Forbidden", "", why, "Access denied.");
        }
        let abort_timeout = self.settings.abort_timeout;
        let exchange = Exchange::new(request, &self.settings.parameters);
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(PIECE_BYTES, 0);
        let outcome = match self.supervisor() {
            Some(supervisor) => {
                let passing = Passing {
                    request,
                    supervisor,
                    buffer: &mut buffer,
                    abort_timeout,
                    exchange,
                    complaints: Complaints::default(),
                };
                passing.pass()
            }
            None => {
                let why = "there is no program";
                refuse(request, UNAVAILABLE, "", why, why)
            }
        };
        self.buffer = buffer;
        outcome
    }
}

fn arguments(command: &StartCommand) -> Vec<String> {
    match command {
        StartCommand::Shell(line) => vec![SHELL.to_owned(), "-c".to_owned(), format!("exec {line}")],
        StartCommand::Program { path, arguments } => {
            let path = path.display().to_string();
            std::iter::once(path).chain(arguments.iter().cloned()).collect()
        }
    }
}

/// How the pool's program is started, for error reports.
pub fn plan(pool: &str, settings: &config::FastCgi, root: PathBuf, account: Account) -> Plan {
    let command = match &settings.command {
        StartCommand::Shell(line) => line.clone(),
        StartCommand::Program { path, .. } => path.display().to_string(),
    };
    let mut plan = Plan::new(pool, root, &command, account);
    (plan.kind, plan.start_timeout) = (Kind::FastCgi, settings.start_timeout);
    plan
}

impl Runtime for FastCgi {
    fn answer(&mut self, request: &mut Request<'_>) {
        if request.is_for_application() {
            let _ = self.serve(request);
        }
    }

    fn prepare(&mut self, has_elder: bool) -> Result<(), Error> {
        self.has_elder = has_elder;
        self.socket = Some(ProgramSocket::open(&std::env::temp_dir())?);
        Ok(())
    }

    fn backend(&mut self) -> Option<&mut dyn Backend> {
        self.supervisor().map(|supervisor| supervisor as &mut dyn Backend)
    }
}

struct Passing<'p, 'w> {
    request: &'p mut Request<'w>,
    supervisor: &'p mut Supervisor,
    buffer: &'p mut Vec<u8>,
    abort_timeout: Duration,
    exchange: Exchange,
    complaints: Complaints,
}

impl Passing<'_, '_> {
    fn pass(mut self) -> Result<(), ClientGone> {
        let outcome = self.try_all();
        self.complaints.log_rest(super::supervisor::NAME);
        self.complaints.let_go(self.request);
        outcome
    }

    /// Tries connections while a retry loses nothing.
    fn try_all(&mut self) -> Result<(), ClientGone> {
        // After a failure on a kept connection it is unknown whether the program read the request, so only repeatable
        // requests use it. On a new connection the program can't have read anything before it accepted.
        let mut kept = self
            .supervisor
            .take_kept()
            .filter(|_| is_repeatable(self.request));
        let mut tries = 0;
        loop {
            tries += 1;
            if let Err(refusal) = self.supervisor.ready() {
                return unavailable(self.request, refusal);
            }
            let is_kept = kept.is_some();
            let connection = match kept.take() {
                Some(connection) => connection,
                None => match self.supervisor.connect() {
                    Ok(connection) => connection,
                    Err(error) => return self.unreachable(&error),
                },
            };
            let outcome = match self.run(&connection) {
                Ok(outcome) => outcome,
                Err(refusal) => return unavailable(self.request, refusal),
            };
            let may_repeat = tries < TRIES
                && match outcome {
                    // The program was killed right after it accepted; unread data can't have crashed it.
                    ExchangeOutcome::Lost { is_unread: true } if self.exchange.is_unheard() => {
                        self.supervisor.look_for_end(END_TIMEOUT);
                        is_repeatable(self.request)
                    }
                    // A program that crashed after reading the request most likely crashed because of it.
                    ExchangeOutcome::Lost { is_unread: false } if is_kept && self.exchange.is_unheard() => {
                        matches!(
                            self.supervisor.look_for_end(END_TIMEOUT),
                            None | Some(Ended::Code(0))
                        )
                    }
                    ExchangeOutcome::Refused(status) => status != ProtocolStatus::UnknownRole,
                    _ => false,
                };
            if may_repeat && self.exchange.rewind() {
                continue;
            }
            return self.conclude(outcome, connection);
        }
    }

    fn run(&mut self, connection: &OwnedFd) -> Result<ExchangeOutcome, Refusal> {
        let mut due = None;
        loop {
            let Some(program) = self.supervisor.program() else {
                due = Some(self.supervisor.ready_for_waiting()?);
                continue;
            };
            let outcome = self.exchange.run(
                self.request,
                connection.as_fd(),
                program,
                &mut self.complaints,
                self.buffer,
                due,
            );
            match outcome {
                ExchangeOutcome::Unaccepted => {
                    self.supervisor.look_for_end(Duration::ZERO);
                }
                ExchangeOutcome::Deaf => return Err(self.supervisor.is_deaf()),
                outcome => {
                    let (cpu, memory) = program.usage();
                    self.request.count_program(cpu, memory);
                    if matches!(outcome, ExchangeOutcome::Lost { is_unread: false }) {
                        self.supervisor.had_work();
                    }
                    return Ok(outcome);
                }
            }
        }
    }

    fn conclude(&mut self, outcome: ExchangeOutcome, connection: OwnedFd) -> Result<(), ClientGone> {
        match outcome {
            ExchangeOutcome::Done { keeps } => {
                self.supervisor.has_served();
                if keeps {
                    self.supervisor.keep(connection);
                }
                Ok(())
            }
            ExchangeOutcome::ClientGone { silent } => {
                let why = if silent { "fell silent" } else { "left" };
                log::info!("a request is called off: the client {why}");
                self.request.log_client_gone();
                let _ = self.request.finish();
                let between = self.exchange.recorded.is_between_records();
                self.supervisor.call_off(connection, between, self.abort_timeout);
                Err(ClientGone)
            }
            ExchangeOutcome::Refused(ProtocolStatus::UnknownRole) => {
                let role = self.request.role().name();
                log::error!("the program does not know the role {role}");
                self.give_up("it does not know the request's role")
            }
            ExchangeOutcome::Refused(_) => {
                log::warn!("the program refuses requests: it is overloaded");
                let why = "the application is overloaded";
                refuse(self.request, UNAVAILABLE, "Retry-After: 1\r\n", why, why)
            }
            ExchangeOutcome::Lost { .. } => {
                self.supervisor.look_for_end(END_TIMEOUT);
                self.give_up("it closed the connection before the end of its answer")
            }
            ExchangeOutcome::Malformed(why) => {
                self.supervisor.kill(why);
                self.give_up(why)
            }
            ExchangeOutcome::Failed(errno) => {
                self.supervisor.kill("it could not be waited for");
                self.give_up(&format!("poll: {errno}"))
            }
            ExchangeOutcome::Unaccepted | ExchangeOutcome::Deaf => self.give_up("it ended"),
        }
    }

    fn give_up(&mut self, why: &str) -> Result<(), ClientGone> {
        if self.exchange.has_begun() {
            log::error!("an answer of the program is cut short: {why}");
            self.complaints.let_go(self.request);
            self.request.break_off();
            return Err(ClientGone);
        }
        log::error!("the program gave no answer: {why}");
        let why = "the application gave no answer";
        refuse(self.request, BAD_GATEWAY, "", why, why)
    }

    fn unreachable(&mut self, error: &Error) -> Result<(), ClientGone> {
        log::error!("the program can't be reached: {error}");
        let why = "the application can't be reached";
        refuse(self.request, UNAVAILABLE, "Retry-After: 1\r\n", why, why)
    }
}

/// Whether the request may be sent twice: its method is idempotent, and it has no body.
fn is_repeatable(request: &Request<'_>) -> bool {
    is_idempotent(request.param(b"REQUEST_METHOD")) && matches!(request.param(b"CONTENT_LENGTH"), b"" | b"0")
}

fn unavailable(request: &mut Request<'_>, refusal: Refusal) -> Result<(), ClientGone> {
    let fields = format!("Retry-After: {}\r\n", refusal.pause.as_secs() + 1);
    let why = format!("the application could not be started (error {})", refusal.id);
    let Some(page) = refusal.page else {
        return refuse(request, UNAVAILABLE, &fields, &why, &why);
    };
    request.write_error(why.as_bytes())?;
    let kind = "Content-Type: text/html; charset=utf-8";
    request.write(format!("Status: {UNAVAILABLE}\r\n{fields}{kind}\r\n\r\n").as_bytes())?;
    request.write(page.as_bytes())
}
