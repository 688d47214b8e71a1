//! Starts the program, detects its exit and restarts it.

use super::probe::Probe;
use super::program::{Recipe, RunningProgram};
use super::program_socket::ProgramSocket;
use super::recorded;
use super::start::{ProgramProgress, ProgramStart};
use crate::complaints::Complaints;
use crate::is_quiet;
use forkyard_base::tick::Tick;
use forkyard_core::life::backoff::{Backoff, LONGEST, WELL_AFTER};
use forkyard_core::life::{Life, LifeCause};
use forkyard_core::master::program::PROOF;
use forkyard_protocol::start_failure::Fall;
use forkyard_spawn::effects::oom_kills;
use forkyard_spawn::handshake::response::CommandCheck;
use forkyard_spawn::plan::Plan;
use forkyard_spawn::report::{ErrorId, Report};
use forkyard_spawn::self_spawn::{Attempt, error_id};
use forkyard_sys::process::Ended;
use forkyard_sys::{Error, clock, pidfd, socket};
use forkyard_worker::{Backend, BackendStage, BackendState, BackendStatus};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub(super) const NAME: &str = "the FastCGI program";
const MOST_LINES: usize = 20;
const MOST_CHARS: usize = 512;

#[derive(Debug)]
pub(super) struct Means {
    pub(super) plan: Arc<Plan>,
    pub(super) recipe: Recipe,
    pub(super) path: String,
    pub(super) catches_output: bool,
    /// Other workers serve the pool, so a worker whose program never came up exits.
    pub(super) has_elder: bool,
    pub(super) shows_report: bool,
    pub(super) reports: Option<OwnedFd>,
    pub(super) stop_timeout: Duration,
}

impl Means {
    /// Looks for mistakes in the command.
    pub(super) fn check(&self) -> CommandCheck {
        forkyard_spawn::setupper::command::check(&self.plan.start_command, &self.plan.app_root, &self.path)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) id: ErrorId,
    pub(super) page: Option<Rc<str>>,
    /// The time until the next attempt.
    pub(super) pause: Duration,
}

#[derive(Debug)]
pub(super) struct Supervisor {
    means: Means,
    socket: ProgramSocket,
    watch: Epoll,
    life: Life,
    start: Option<ProgramStart>,
    program: Option<RunningProgram>,
    attempt: Option<Attempt>,
    /// An idle connection for the next request.
    kept: Option<OwnedFd>,
    backoff: Backoff,
    /// The report of the last failed start: requests are refused until the program is up. Otherwise they wait.
    last: Option<(ErrorId, Option<Rc<str>>)>,
    oom_kills: u64,
    up_since: Tick,
    ups: u64,
    /// The program has been up, and for at least [`PROOF`] if others serve the pool.
    was_up: bool,
    complaints: Complaints,
}

impl Supervisor {
    /// Creates a supervisor; the first poll starts the program.
    ///
    /// # Errors
    /// No free descriptor.
    pub(super) fn new(means: Means, socket: ProgramSocket) -> Result<Supervisor, Error> {
        let watch = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
        Ok(Supervisor {
            means,
            socket,
            watch: watch.map_err(|errno| Error::new("epoll_create1", "", errno))?,
            life: Life::Absent,
            start: None,
            program: None,
            attempt: None,
            kept: None,
            backoff: Backoff::default(),
            last: None,
            up_since: Tick::ZERO,
            ups: 0,
            oom_kills: 0,
            was_up: false,
            complaints: Complaints::default(),
        })
    }

    pub(super) fn program(&mut self) -> Option<&mut RunningProgram> {
        self.program.as_mut()
    }

    /// Waits until the program is up.
    ///
    /// # Errors
    /// The program can't be started. Fails at once right after a failed start.
    pub(super) fn ready(&mut self) -> Result<(), Refusal> {
        loop {
            match self.life {
                Life::Ready => return Ok(()),
                _ if self.last.is_some() => return Err(self.refusal()),
                _ => {}
            }
            if matches!(self.life, Life::Starting | Life::Absent) {
                let left = self
                    .deadline()
                    .map_or(Duration::ZERO, |due| due.since(clock::now()));
                super::exchange::wait_for(&[self.watch()], left);
            }
            self.poll();
        }
    }

    /// Starts the program for a request that already waits in its socket, before any probe. Returns the deadline for
    /// reading it.
    ///
    /// # Errors
    /// As [`Supervisor::ready`].
    pub(super) fn ready_for_waiting(&mut self) -> Result<Tick, Refusal> {
        if self.life == Life::Absent && self.last.is_none() {
            let progress = match self.start() {
                ProgramProgress::Pending(start) => {
                    self.oom_kills = start.oom_kills;
                    start.trust()
                }
                other => other,
            };
            self.follow(progress);
            self.watch_all();
        }
        match self.life {
            Life::Ready => Ok(clock::now() + self.means.plan.start_timeout),
            _ => Err(self.refusal()),
        }
    }

    pub(super) fn is_deaf(&mut self) -> Refusal {
        let attempt = self.attempt.take();
        if let Some(program) = self.program.take() {
            program.kill();
        }
        self.kept = None;
        self.changed(LifeCause::Gone);
        if let Some(attempt) = attempt {
            self.failed(attempt, &Fall::Timeout);
        }
        self.refusal()
    }

    fn refusal(&self) -> Refusal {
        let now = clock::now();
        let (id, page) = self.last.clone().unwrap_or((ErrorId(0), None));
        Refusal {
            id,
            page,
            pause: self.backoff.wait(now).unwrap_or_default(),
        }
    }

    pub(super) fn take_kept(&mut self) -> Option<OwnedFd> {
        self.kept.take().filter(is_quiet)
    }

    pub(super) fn keep(&mut self, connection: OwnedFd) {
        self.kept = Some(connection);
    }

    pub(super) fn connect(&mut self) -> Result<OwnedFd, Error> {
        // A single-threaded program does not accept while it has another connection.
        self.kept = None;
        self.socket.connect()
    }

    pub(super) fn had_work(&mut self) {
        if let Some(program) = &mut self.program {
            program.had_work = true;
        }
    }

    pub(super) fn has_served(&mut self) {
        if let Some(program) = &mut self.program {
            program.served += 1;
            program.had_work = false;
        }
    }

    pub(super) fn call_off(&mut self, connection: OwnedFd, is_between_records: bool, limit: Duration) {
        if is_between_records {
            let _ = socket::send(connection.as_fd(), &recorded::abort());
        }
        drop(connection);
        let Some(program) = &self.program else { return };
        let free = Probe::ask(&self.socket, clock::now())
            .ok()
            .and_then(|probe| probe.wait(program.process(), limit));
        match free {
            Some(connection) => self.kept = connection,
            None if pidfd::has_ended(program.process()) => {}
            None => self.kill(&format!(
                "it went on with a request for {} s after its client had left",
                limit.as_secs_f64()
            )),
        }
    }

    pub(super) fn kill(&mut self, why: &str) {
        if let Some(program) = self.program.take() {
            log::warn!("{NAME} (pid {}) was killed: {why}", program.pid());
            program.kill();
        }
        (self.kept, self.attempt) = (None, None);
        self.changed(LifeCause::Gone);
    }

    pub(super) fn look_for_end(&mut self, limit: Duration) -> Option<Ended> {
        let program = self.program.as_ref()?;
        if !program.has_ended_within(limit) {
            return None;
        }
        self.poll_program()
    }

    fn start(&mut self) -> ProgramProgress {
        self.changed(LifeCause::Needed);
        ProgramStart::begin(&self.means, &self.socket)
    }

    fn poll_start(&mut self) {
        let Some(start) = self.start.take() else { return };
        let (means, complaints) = (&self.means, &mut self.complaints);
        let mut log = |bytes: &[u8]| {
            if means.catches_output {
                complaints.log(bytes, NAME);
            }
        };
        let progress = start.poll(means, &self.socket, &mut log);
        self.follow(progress);
    }

    fn follow(&mut self, progress: ProgramProgress) {
        match progress {
            ProgramProgress::Pending(start) => {
                self.oom_kills = start.oom_kills;
                self.start = Some(start);
            }
            ProgramProgress::Up(program, attempt, connection) => {
                if let Some(connection) = &connection {
                    let _ = self.watch.delete(connection);
                }
                if self.last.take().is_some() {
                    log::warn!("{NAME} is up again (pid {})", program.pid());
                }
                log::debug!("{NAME} is up (pid {})", program.pid());
                self.changed(LifeCause::Up);
                (self.program, self.attempt, self.kept) = (Some(program), Some(attempt), connection);
                self.up_since = clock::now();
                self.was_up |= !self.means.has_elder;
                self.ups += 1;
            }
            ProgramProgress::Failed(attempt, fall) => {
                self.changed(LifeCause::Gone);
                self.failed(attempt, &fall);
            }
        }
    }

    fn poll_program(&mut self) -> Option<Ended> {
        let program = self.program.as_mut()?;
        let (means, complaints, attempt) = (&self.means, &mut self.complaints, &mut self.attempt);
        if let Some(attempt) = attempt {
            attempt.wrote(std::mem::take(&mut program.said).text().as_bytes());
        }
        let mut log = |bytes: &[u8]| {
            if let Some(attempt) = attempt {
                attempt.wrote(bytes);
            }
            if means.catches_output {
                complaints.log(bytes, NAME);
            }
        };
        program.read_output(&mut log);
        let ended = program.reap()?;
        program.read_output(&mut log);
        let (pid, served, had_work) = (program.pid(), program.served, program.had_work);
        self.complaints.log_rest(NAME);
        (self.program, self.kept) = (None, None);
        self.changed(LifeCause::Gone);
        let now = clock::now();
        self.backoff.lives(self.up_since);
        // Many programs exit on their own after a number of requests, or an administrator may have stopped this one.
        let is_in_order = served > 0 && (ended == Ended::Code(0) || ended.is_from_outside());
        let was_up = self.was_up;
        let is_well = had_work || is_in_order || now.since(self.up_since) >= WELL_AFTER;
        let falls_again = !is_well && self.backoff.has_failed(now);
        if was_up && !is_well && !falls_again {
            self.backoff.fail(now, LONGEST);
        }
        if let Some(attempt) = self.attempt.take().filter(|_| !was_up || falls_again) {
            let is_oom = oom_kills(None) > self.oom_kills;
            self.failed(attempt, &Fall::Left(ended, is_oom));
            return Some(ended);
        }
        let line = format!(
            "{NAME} (pid {pid}) {} after {served} requests, and is started again",
            ended.describe()
        );
        match ended {
            Ended::Code(0) => log::info!("{line}"),
            Ended::Code(_) | Ended::Signal { .. } | Ended::Unknown => log::warn!("{line}"),
        }
        Some(ended)
    }

    fn failed(&mut self, attempt: Attempt, fall: &Fall) {
        self.complaints.log_rest(NAME);
        let now = clock::now();
        let seed = now.as_nanos() ^ (u64::from(std::process::id()) << 40);
        let (id, variables) = (error_id(seed), Some(self.means.recipe.variables()));
        if let Some(reports) = &self.means.reports {
            let start_failure = attempt.start_failure(fall, variables.clone(), id, now).encode();
            let _ = socket::send(reports.as_fd(), &start_failure);
        }
        let report = attempt.fail(fall, variables, id, now);
        let pause = self.backoff.fail(now, LONGEST).unwrap_or_default();
        let page = self.means.shows_report.then(|| Rc::from(report.page()));
        self.last = Some((report.id, page));
        self.say(&report);
        if self.standing() != BackendState::Lost {
            log::error!(
                "requests are answered with 503 (error {}), trying again in {} s",
                report.id,
                pause.as_secs_f64()
            );
        }
    }

    fn proof(&self) -> Option<Tick> {
        (self.life == Life::Ready).then(|| self.up_since + PROOF)
    }

    fn changed(&mut self, cause: LifeCause) {
        self.life = self.life.after(cause).0;
    }

    fn say(&self, report: &Report) {
        log::error!("{}", report.sentence());
        let output: Vec<&str> = report.output.lines().collect();
        let last = output[output.len().saturating_sub(MOST_LINES)..].join("\n");
        for (title, text) in [
            ("what happened", report.failure.problem.as_str()),
            ("how to solve it", report.failure.solution.as_str()),
            ("it wrote", last.as_str()),
        ] {
            for line in text.lines().take(MOST_LINES) {
                let line: String = line.chars().take(MOST_CHARS).collect();
                let id = report.id;
                log::error!("error {id}, {title}: {}", line.escape_debug());
            }
        }
    }

    fn watch_all(&self) {
        let program = self.program.as_ref();
        let of_program = program
            .into_iter()
            .flat_map(|p| std::iter::once(p.process()).chain(p.output()));
        let of_start = self.start.iter().flat_map(ProgramStart::sources);
        for source in of_program.chain(of_start) {
            match self.watch.add(source, EpollEvent::new(EpollFlags::EPOLLIN, 0)) {
                // A closed descriptor leaves the set, so an existing entry is for this descriptor.
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => log::error!("epoll_ctl: {errno}"),
            }
        }
    }
}

impl Backend for Supervisor {
    fn watch(&self) -> BorrowedFd<'_> {
        self.watch.0.as_fd()
    }

    fn deadline(&self) -> Option<Tick> {
        match self.life {
            Life::Absent => self.backoff.until().or(Some(Tick::ZERO)),
            Life::Ready => self.proof().filter(|_| !self.was_up),
            Life::Starting | Life::Failing | Life::Stopping(_) => {
                self.start.as_ref().map(ProgramStart::deadline)
            }
        }
    }

    fn standing(&self) -> BackendState {
        match self.life {
            Life::Ready if self.was_up => BackendState::Ready,
            Life::Ready => BackendState::Pending,
            _ if self.last.is_none() => BackendState::Pending,
            _ if self.means.has_elder && !self.was_up => BackendState::Lost,
            _ => BackendState::Ready,
        }
    }

    fn status(&self) -> BackendStatus {
        let starting = self.start.as_ref().map(ProgramStart::pid);
        let program = self.program.as_ref();
        BackendStatus {
            pid: program.map(RunningProgram::pid).or(starting).unwrap_or(0),
            doing: match self.life {
                Life::Ready => BackendStage::Up,
                _ if self.last.is_some() => BackendStage::Failing,
                _ => BackendStage::Starting,
            },
            since: self.up_since,
            served: program.map_or(0, |program| program.served),
            ups: self.ups,
        }
    }

    fn poll(&mut self) {
        match self.life {
            Life::Absent if self.backoff.wait(clock::now()).is_some() => {}
            Life::Absent => {
                self.socket.clear();
                let progress = self.start();
                self.follow(progress);
            }
            Life::Ready => {
                self.poll_program();
                if self.life == Life::Ready && self.proof().is_some_and(|proof| proof <= clock::now()) {
                    self.was_up = true;
                }
            }
            Life::Starting | Life::Failing | Life::Stopping(_) => self.poll_start(),
        }
        self.watch_all();
    }

    fn leave(&mut self) {
        self.kept = None;
        if let Some(start) = self.start.take() {
            start.kill();
        }
        if let Some(program) = self.program.take() {
            program.end(self.means.stop_timeout);
        }
    }
}
