//! Starts a program for a request and passes data both ways.

use super::head::Head;
use super::meta;
use super::target::{self, NoTarget, Target};
use crate::complaints::Complaints;
use crate::refuse;
use forkyard_config as config;
use forkyard_scoreboard::RequestStage;
use forkyard_sys::process::{self, Ended, Program, Usage};
use forkyard_sys::{Error, external, fd, timeout_responder};
use forkyard_worker::{ClientGone, Peer, Request, Runtime, Sink, Stop, relay};
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

/// How long to wait for the program's exit before the answer ends, if the access log includes CPU time or memory. Most
/// programs exit right after their output.
const USAGE_TIMEOUT: Duration = Duration::from_millis(20);

/// The CGI runtime.
#[derive(Debug)]
pub struct Cgi {
    settings: config::Cgi,
}

impl Cgi {
    /// Creates a runtime with these settings.
    pub fn new(settings: config::Cgi) -> Cgi {
        Cgi { settings }
    }

    fn serve(&self, request: &mut Request<'_>) -> Result<(), ClientGone> {
        let (script, root) = (self.settings.script.as_deref(), self.settings.root.as_deref());
        let found = target::find(script, root, request.params());
        let found = found.and_then(|target| {
            let path = target.script.as_os_str().as_bytes();
            match script.is_none() && request.leads_out(path) {
                true => Err(NoTarget::LeadsOut(target.script)),
                false => Ok(target),
            }
        });
        let target = match found {
            Ok(target) => target,
            Err(none) => {
                let unrun = none.unrun(request.params());
                request.refuse_script(&unrun);
                let status = none.status();
                return refuse(request, status, "", &none.to_string(), &status[4..]);
            }
        };
        let program = match self.begin(request, &target) {
            Ok(program) => program,
            Err(error) => {
                let script = target.script.display();
                log::error!("{script} can't be started: {error}{}", hint(&error));
                return internal_error(request, "the program could not be started");
            }
        };
        program.answer(request, &target)
    }

    fn begin(&self, request: &Request<'_>, target: &Target) -> Result<CgiProcess, Error> {
        let own = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
        let (input_theirs, input) = fd::pipe(false)?;
        let (output, output_theirs) = fd::pipe(false)?;
        let (errors, errors_theirs) = fd::pipe(false)?;
        for ours in [&input, &output, &errors] {
            fd::set_nonblocking(ours.as_fd(), true)?;
        }
        let directory = target.script.parent().unwrap_or(Path::new("/"));
        let c_string = |path: &Path| CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
        let program = Program {
            path: c_string(&target.script),
            arguments: meta::arguments(self.settings.search_arguments, request.params(), target),
            environment: meta::environment(own, request.params(), target, &self.settings.parameters),
            descriptors: vec![(input_theirs, 0), (output_theirs, 1), (errors_theirs, 2)],
            descriptor_limit: None,
        };
        let pid = timeout_responder::start_and_pass_on(|| {
            external::start_retrying(&program, &c_string(directory))
        })?;
        let peer = Peer {
            input: Some(input),
            output,
            errors: Some(errors),
        };
        Ok(CgiProcess { pid, peer })
    }
}

impl Runtime for Cgi {
    fn answer(&mut self, request: &mut Request<'_>) {
        if request.is_for_application() {
            let _ = self.serve(request);
        }
    }
}

struct CgiProcess {
    pid: i32,
    peer: Peer,
}

impl CgiProcess {
    fn answer(self, request: &mut Request<'_>, target: &Target) -> Result<(), ClientGone> {
        let CgiProcess { pid, peer } = self;
        let name = target.script.file_name().unwrap_or_default();
        let mut answer = CgiAnswer {
            head: Some(Head::new(name.as_bytes().starts_with(b"nph-"))),
            wrong: None,
            script: &target.script,
            complaints: Complaints::default(),
        };
        let relayed = relay(request, peer, &mut answer);
        answer.complaints.log_rest(&target.script.to_string_lossy());
        let outcome = match relayed {
            Ok(()) => answer.end(request),
            Err(stop) => {
                external::kill_group(pid);
                answer.give_up(request, stop)
            }
        };
        answer.complaints.let_go(request);
        let mut reaped = None;
        if outcome.is_ok() {
            if !request.param(b"FORKYARD_JOB_ID").is_empty() {
                // A job ends when its program exits, with the program's exit code.
                reaped = wait_and_reap(pid).ok();
                request.set_app_status(reaped.as_ref().map_or(0, |(ended, _)| exit_code(*ended)));
                account(request, reaped.as_ref());
            } else if request.logs_usage() {
                if process::ends_within(pid, USAGE_TIMEOUT) {
                    reaped = wait_and_reap(pid).ok();
                }
                account(request, reaped.as_ref());
            }
            // The line is in the access log before the client receives the end of the answer.
            request.set_stage(RequestStage::End);
            let _ = request.finish();
        }
        let reaped = match reaped {
            Some(reaped) => Ok(reaped),
            None => wait_and_reap(pid).inspect(|reaped| account(request, Some(reaped))),
        };
        match reaped.map(|(ended, _)| ended) {
            Ok(Ended::Code(0)) => {}
            Ok(ended) if relayed.is_ok() => {
                log::warn!("{} {}", target.script.display(), told(ended));
            }
            Ok(_) => {}
            Err(error) => log::error!("{error}"),
        }
        timeout_responder::end_if_passed_on();
        outcome
    }
}

/// Reaps the program. Meanwhile a SIGTERM is forwarded to it.
fn wait_and_reap(pid: i32) -> Result<(Ended, Usage), Error> {
    process::wait_for_end(pid)?;
    timeout_responder::pass_on_to_none();
    process::reap_used(pid)
}

fn exit_code(ended: Ended) -> u32 {
    match ended {
        Ended::Code(code) => u32::try_from(code).unwrap_or(255),
        Ended::Signal { number, .. } => 128 + u32::try_from(number).unwrap_or(0),
        Ended::Unknown => 255,
    }
}

fn account(request: &mut Request<'_>, reaped: Option<&(Ended, Usage)>) {
    if let Some((_, usage)) = reaped {
        request.count_waited(usage.cpu_micros, usage.peak_memory_bytes);
    }
}

struct CgiAnswer<'t> {
    head: Option<Head>,
    wrong: Option<String>,
    script: &'t Path,
    complaints: Complaints,
}

impl Sink for CgiAnswer<'_> {
    fn output(&mut self, request: &mut Request<'_>, bytes: &[u8]) -> Result<(), Stop> {
        let Some(head) = &mut self.head else {
            return Ok(request.write(bytes)?);
        };
        match head.take(bytes) {
            Ok(None) => Ok(()),
            Ok(Some((header, rest))) => {
                request.write(&header)?;
                self.head = None;
                self.complaints.let_go(request);
                request.write(rest)?;
                Ok(())
            }
            Err(malformed) => {
                self.wrong = Some(malformed.to_string());
                Err(Stop::Enough)
            }
        }
    }

    fn errors(&mut self, request: &mut Request<'_>, bytes: &[u8]) {
        let program = self.script.to_string_lossy();
        self.complaints
            .take(bytes, request, self.head.is_none(), &program);
    }
}

impl CgiAnswer<'_> {
    fn end(&mut self, request: &mut Request<'_>) -> Result<(), ClientGone> {
        match self.head.take() {
            None => Ok(()),
            Some(head) => self.malformed(request, &head.ended().to_string()),
        }
    }

    fn give_up(&mut self, request: &mut Request<'_>, stop: Stop) -> Result<(), ClientGone> {
        match stop {
            Stop::Enough => {
                let wrong = self.wrong.take().unwrap_or_default();
                self.malformed(request, &wrong)
            }
            Stop::Failed(errno) => {
                log::error!("poll: {errno}");
                if self.head.is_some() {
                    return internal_error(request, "the program could not be waited for");
                }
                Ok(())
            }
            Stop::ClientGone | Stop::ClientSilent => {
                let script = self.script.display();
                let why = if stop == Stop::ClientGone {
                    "left"
                } else {
                    "fell silent"
                };
                log::info!("{script} was killed: the client {why}");
                request.log_client_gone();
                Err(ClientGone)
            }
        }
    }

    fn malformed(&self, request: &mut Request<'_>, why: &str) -> Result<(), ClientGone> {
        log::error!("malformed answer of {}: {why}", self.script.display());
        internal_error(request, "the program's answer is malformed")
    }
}

fn internal_error(request: &mut Request<'_>, why: &str) -> Result<(), ClientGone> {
    refuse(request, "500 Internal Server Error", "", why, why)
}

fn hint(error: &Error) -> &'static str {
    match error.errno {
        nix::errno::Errno::ENOEXEC => ": it is no program; let a script begin with #! and its interpreter",
        nix::errno::Errno::ENOENT => ": its interpreter, the one behind #!, does not exist",
        nix::errno::Errno::EACCES => ": the pool's user may not execute it or its interpreter",
        _ => "",
    }
}

fn told(ended: Ended) -> String {
    match ended {
        Ended::Code(code) => format!("exited with code {code}"),
        Ended::Signal { number, .. } => format!("was ended by signal {number}"),
        Ended::Unknown => "ended".to_owned(),
    }
}
