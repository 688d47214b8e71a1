//! One journey: what comes after what, and what is done when something fails.
//!
//! ```text
//!  Preparing ─▶ Forking ────────────────────────────────▶ Handshaking ─▶ Checking ─▶ over: up
//!      │  ▲                                                  ▲   │           │
//!      │  └──────────────── another port ────────────────────┼───┤           │
//!      └─▶ Waiting ─▶ Connecting ─▶ Sending ─▶ Reading ─▶ Adopting           │
//!             ▲           │            │          │                          │
//!             └───────────┴── lost ────┴──────────┘                          │
//!                                                                            │
//!  from each: Flushing ─▶ Examining ─▶ Killing ─▶ Sweeping ─▶ over: failed ◀─┘
//! ```
//!
//! A failure waits a moment for the last words of the process, reads what it left behind, and ends it and all that it has
//! started. Only then is it told, so that nothing is left behind when somebody tries again.

use super::action::Order;
use super::error::{Ended, Failure, Trouble, explain};
use super::event::{JourneyId, News, PRELOADER_STEPS, Token};
use super::handshake::properties::{self, Address, Socket};
use super::handshake::response::{Properties, Response};
use super::journey::{Journey, State};
use super::plan::Plan;
use super::preloader::wire::{self, Answer};
use super::step::{Party, Route, Step};
use crate::tick::Tick;
use std::sync::Arc;
use std::time::Duration;

/// How long the last output is waited for.
const LAST_WORDS: Duration = Duration::from_millis(50);
/// How long a process that was killed is waited for. It may be stuck in the kernel.
const KILLED: Duration = Duration::from_secs(2);
/// Pause between two tries to connect to a port.
const PING_PAUSE: Duration = Duration::from_millis(50);
/// Pause before a preloader is asked again that many ask at once.
const ASK_PAUSE: Duration = Duration::from_millis(20);
/// Pause between two looks for processes that are left.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);
/// Most looks for processes that are left.
const MOST_SWEEPS: u32 = 100;
/// How many ports are tried, where others take them.
const MOST_PORTS: u32 = 3;

/// For whom a journey is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Somebody wants the process.
    Wish(Token),
    /// It is the preloader of its application.
    Preloader,
}

/// Where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The work directory is made.
    Preparing,
    /// The process is forked.
    Forking,
    /// The preloader is not up yet.
    Waiting,
    /// The preloader is connected to.
    Connecting,
    /// The command is sent to it.
    Sending,
    /// Its answer is awaited.
    Reading,
    /// The process that it named is looked at.
    Adopting,
    /// The process is to say that it is up.
    Handshaking,
    /// It did; what it says of itself is read.
    Checking,
    /// Something failed; last words are awaited.
    Flushing,
    /// What the process left behind is read.
    Examining,
    /// The process is killed.
    Killing,
    /// What it started is killed.
    Sweeping,
    /// Nothing more is done.
    Over,
}

/// What the machine has to do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing.
    Nothing,
    /// A preloader is needed.
    NeedsPreloader,
    /// The preloader is lost, and another is needed.
    LostPreloader,
    /// It is up.
    Up,
    /// It failed, and nothing is left of it.
    Failed,
}

/// A journey under way.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) purpose: Purpose,
    pub(super) plan: Arc<Plan>,
    pub(super) journey: Journey,
    pub(super) started: Tick,
    pub(super) phase: Phase,
    pub(super) pid: Option<i32>,
    /// How it ended, if it did so by itself.
    pub(super) died: Option<Ended>,
    pub(super) response: Option<Box<Response>>,
    pub(super) sockets: Vec<Socket>,
    /// Journey of the preloader that was asked.
    pub(super) preloader: Option<JourneyId>,
    address: Option<Address>,
    /// Processes that could not be ended.
    pub(super) left: usize,
    deadline: Tick,
    due: Option<Tick>,
    trouble: Option<Trouble>,
    exited: bool,
    output_ended: bool,
    finish: Option<Option<u8>>,
    prepared: bool,
    retried: bool,
    taken: bool,
    ports: u32,
    sweeps: u32,
}

impl Attempt {
    /// Begins a journey.
    pub(super) fn begin(
        purpose: Purpose,
        plan: Arc<Plan>,
        route: Route,
        now: Tick,
        out: &mut Vec<Order>,
    ) -> Attempt {
        let mut journey = Journey::new(route, plan.kind.has_wrapper());
        note(journey.begin(Step::KitPreparation, now));
        out.push(Order::Prepare {
            plan: Arc::clone(&plan),
            route,
        });
        Attempt {
            purpose,
            journey,
            started: now,
            phase: Phase::Preparing,
            pid: None,
            died: None,
            exited: false,
            finish: None,
            response: None,
            sockets: Vec::new(),
            preloader: None,
            address: None,
            left: 0,
            deadline: now + plan.start_timeout,
            due: None,
            trouble: None,
            output_ended: false,
            prepared: false,
            retried: false,
            taken: false,
            ports: 1,
            sweeps: 0,
            plan,
        }
    }

    /// When it has to be looked at again.
    pub(super) fn next_deadline(&self) -> Option<Tick> {
        let whole = match self.phase {
            Phase::Preparing
            | Phase::Forking
            | Phase::Waiting
            | Phase::Connecting
            | Phase::Sending
            | Phase::Reading
            | Phase::Adopting
            | Phase::Handshaking
            | Phase::Checking => Some(self.deadline),
            // What follows a failure has times of its own.
            Phase::Flushing | Phase::Examining | Phase::Killing | Phase::Sweeping | Phase::Over => None,
        };
        [whole, self.due].into_iter().flatten().min()
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, now: Tick, out: &mut Vec<Order>) -> Progress {
        if self.next_deadline().is_none_or(|next| next > now) {
            return Progress::Nothing;
        }
        let is_late = self.deadline <= now;
        match self.phase {
            Phase::Handshaking if !is_late => {
                self.due = None;
                out.push(Order::Ping);
                Progress::Nothing
            }
            Phase::Connecting if !is_late => {
                self.due = None;
                out.extend(self.address.clone().map(|address| Order::Ask { address }));
                Progress::Nothing
            }
            Phase::Preparing
            | Phase::Forking
            | Phase::Waiting
            | Phase::Connecting
            | Phase::Sending
            | Phase::Reading
            | Phase::Adopting
            | Phase::Handshaking
            | Phase::Checking => {
                if is_late {
                    self.fail(Trouble::Timeout(self.step()), now, out)
                } else {
                    self.due = None;
                    Progress::Nothing
                }
            }
            Phase::Flushing => self.examine(out),
            Phase::Killing => self.sweep(out),
            Phase::Sweeping => {
                self.due = None;
                out.push(Order::Sweep);
                Progress::Nothing
            }
            Phase::Examining | Phase::Over => {
                self.due = None;
                Progress::Nothing
            }
        }
    }

    /// It is not wanted any more.
    pub(super) fn cancel(&mut self, now: Tick, out: &mut Vec<Order>) -> Progress {
        if self.phase == Phase::Sweeping && self.trouble.is_none() {
            // Between two ports: there is no second.
            self.trouble = Some(Trouble::Cancelled);
            return Progress::Nothing;
        }
        self.fail(Trouble::Cancelled, now, out)
    }

    /// The preloader is up: it is asked.
    pub(super) fn ask(&mut self, preloader: JourneyId, address: Address, now: Tick, out: &mut Vec<Order>) {
        debug_assert_eq!(self.phase, Phase::Waiting);
        self.phase = Phase::Connecting;
        self.preloader = Some(preloader);
        self.address = Some(address.clone());
        self.deadline = now + self.plan.start_timeout;
        out.push(Order::Ask { address });
    }

    /// Something happened.
    pub(super) fn handle(&mut self, news: News, now: Tick, out: &mut Vec<Order>) -> Progress {
        // Facts that are true from now on, whatever the phase.
        match &news {
            News::Forked { pid } => self.pid = Some(*pid),
            News::Exited(ended) => {
                // How it ended when it was killed by us says nothing.
                self.died = self.died.or((self.phase != Phase::Killing).then_some(*ended));
                self.exited = true;
            }
            News::OutputEnded => self.output_ended = true,
            // A preloader's fork may be faster than the answer that names it.
            News::Finish(byte) => self.finish = Some(*byte),
            _ => {}
        }
        match (self.phase, news) {
            (Phase::Preparing, News::Prepared) => self.prepared(now, out),
            (Phase::Preparing, News::NotPrepared(fault)) => self.fail(Trouble::Preparation(fault), now, out),
            (Phase::Forking, News::Forked { .. }) => {
                note(self.journey.perform(Step::KitForkSubprocess, now));
                self.handshake(now, out)
            }
            (Phase::Forking, News::NotForked(fault)) => self.fail(Trouble::Fork(fault), now, out),
            (Phase::Connecting, News::Busy) => {
                self.due = Some(now + ASK_PAUSE);
                Progress::Nothing
            }
            (Phase::Connecting, News::Connected) => {
                let steps = (Step::KitConnectToPreloader, Step::KitSendCommandToPreloader);
                self.advance(Phase::Sending, steps, now)
            }
            (Phase::Sending, News::Sent) => {
                let steps = (
                    Step::KitSendCommandToPreloader,
                    Step::KitReadResponseFromPreloader,
                );
                self.advance(Phase::Reading, steps, now)
            }
            (Phase::Reading, News::Answered(line)) => self.answered(&line, now, out),
            (Phase::Connecting | Phase::Sending | Phase::Reading, News::Lost(fault)) => {
                if self.retried {
                    let step = self.step();
                    return self.fail(Trouble::PreloaderLost(step, fault), now, out);
                }
                self.retried = true;
                self.journey.reset();
                note(self.journey.perform(Step::KitPreparation, now));
                self.wait(now);
                Progress::LostPreloader
            }
            (Phase::Adopting, News::Adopted) => {
                note(self.journey.perform(Step::KitProcessResponseFromPreloader, now));
                self.handshake(now, out)
            }
            (Phase::Adopting, News::NotAdopted(why)) => {
                self.pid = None;
                self.fail(Trouble::WrongProcess(why), now, out)
            }
            (Phase::Handshaking, News::Finish(Some(b'1')) | News::Pinged) => {
                (self.phase, self.due) = (Phase::Checking, None);
                out.push(Order::Load);
                Progress::Nothing
            }
            (Phase::Handshaking, News::Finish(byte)) => self.fail(Trouble::Aborted { byte }, now, out),
            (Phase::Handshaking, News::FinishUnreadable(fault)) => {
                self.fail(Trouble::Finish(fault), now, out)
            }
            (Phase::Handshaking, News::Silent) => {
                self.due = Some(now + PING_PAUSE);
                Progress::Nothing
            }
            (Phase::Handshaking, News::Taken) => {
                self.taken = true;
                self.due = Some(now + PING_PAUSE);
                Progress::Nothing
            }
            (Phase::Adopting | Phase::Handshaking, News::Exited(ended)) => {
                if self.taken && self.ports < MOST_PORTS {
                    // It could not have its port: somebody was faster.
                    self.ports += 1;
                    self.trouble = None;
                    return self.sweep(out);
                }
                self.fail(Trouble::Exited(ended), now, out)
            }
            (Phase::Checking, News::Loaded(response)) => {
                let verdict = self.judge(&response);
                self.response = Some(response);
                match verdict {
                    Ok(sockets) => self.arrive(sockets, now, out),
                    Err(trouble) => self.fail(trouble, now, out),
                }
            }
            (Phase::Flushing, News::Exited(_) | News::OutputEnded) => {
                if self.exited && self.output_ended {
                    return self.examine(out);
                }
                Progress::Nothing
            }
            (Phase::Examining, News::Loaded(response)) => {
                let (records, bad) = response.records();
                for record in records {
                    self.journey.load(record);
                }
                let speaks = matches!(
                    self.trouble,
                    Some(Trouble::Exited(_) | Trouble::Aborted { .. } | Trouble::Timeout(_))
                );
                match (speaks, response.complaint.category(), bad) {
                    (true, Err(text), _) => self.trouble = Some(Trouble::BadCategory(text)),
                    (true, Ok(_), Some(bad)) => self.trouble = Some(Trouble::BadStep(bad.step, bad.text)),
                    (true, Ok(_), None) | (false, _, _) => {}
                }
                self.response = Some(response);
                self.kill(now, out)
            }
            (Phase::Killing, News::Exited(_)) => self.sweep(out),
            (Phase::Sweeping, News::Swept { left }) => self.swept(left, now, out),
            // Ignored: late news of a phase that is over, or of no use in this one.
            (
                Phase::Preparing
                | Phase::Forking
                | Phase::Waiting
                | Phase::Connecting
                | Phase::Sending
                | Phase::Reading
                | Phase::Adopting
                | Phase::Handshaking
                | Phase::Checking
                | Phase::Flushing
                | Phase::Examining
                | Phase::Killing
                | Phase::Sweeping
                | Phase::Over,
                News::Prepared
                | News::NotPrepared(_)
                | News::Forked { .. }
                | News::NotForked(_)
                | News::Connected
                | News::Busy
                | News::Sent
                | News::Answered(_)
                | News::Lost(_)
                | News::Adopted
                | News::NotAdopted(_)
                | News::Finish(_)
                | News::FinishUnreadable(_)
                | News::Pinged
                | News::Silent
                | News::Taken
                | News::OutputEnded
                | News::Exited(_)
                | News::Loaded(_)
                | News::Swept { .. },
            ) => Progress::Nothing,
        }
    }

    /// The failure, explained; marks its step. For one that has failed.
    pub(super) fn explain(&mut self, now: Tick) -> Failure {
        let trouble = self.trouble.clone().unwrap_or(Trouble::Cancelled);
        let failure = explain(&trouble, &self.journey, &self.plan, self.response.as_deref());
        let current = self.step();
        if self.journey.state(current) == State::InProgress {
            self.journey.blame(current, now);
        }
        self.journey.blame(failure.step, now);
        failure
    }

    /// Whether its failure says anything of the application.
    pub(super) fn is_to_blame(&self) -> bool {
        !matches!(self.trouble, Some(Trouble::Cancelled))
    }

    /// Our step that is under way.
    fn step(&self) -> Step {
        let mut kit = self.journey.steps_of(Party::Kit);
        let running = kit.find(|step| self.journey.state(*step) == State::InProgress);
        running.unwrap_or(Step::KitPreparation)
    }

    fn prepared(&mut self, now: Tick, out: &mut Vec<Order>) -> Progress {
        self.prepared = true;
        note(self.journey.perform(Step::KitPreparation, now));
        if self.journey.route() == Route::SpawnThroughPreloader {
            self.wait(now);
            return Progress::NeedsPreloader;
        }
        self.phase = Phase::Forking;
        note(self.journey.begin(Step::KitForkSubprocess, now));
        note(self.journey.begin(Step::SubprocessBeforeFirstExec, now));
        out.push(Order::Fork);
        Progress::Nothing
    }

    fn advance(&mut self, phase: Phase, (done, next): (Step, Step), now: Tick) -> Progress {
        self.phase = phase;
        note(self.journey.perform(done, now));
        note(self.journey.begin(next, now));
        Progress::Nothing
    }

    fn answered(&mut self, line: &[u8], now: Tick, out: &mut Vec<Order>) -> Progress {
        let steps = (
            Step::KitReadResponseFromPreloader,
            Step::KitParseResponseFromPreloader,
        );
        self.advance(Phase::Adopting, steps, now);
        match wire::parse(line) {
            Err(why) => self.fail(Trouble::PreloaderAnswer(why), now, out),
            Ok(answer) => {
                let steps = (
                    Step::KitParseResponseFromPreloader,
                    Step::KitProcessResponseFromPreloader,
                );
                self.advance(Phase::Adopting, steps, now);
                match (answer, self.preloader) {
                    (Answer::Forked(pid), Some(preloader)) => {
                        self.pid = Some(pid);
                        out.push(Order::Adopt { pid, preloader });
                        Progress::Nothing
                    }
                    (Answer::Forked(_), None) => {
                        self.fail(Trouble::PreloaderAnswer("nobody was asked".to_owned()), now, out)
                    }
                    (Answer::Refused(message), _) => self.fail(Trouble::PreloaderSaid(message), now, out),
                }
            }
        }
    }

    fn handshake(&mut self, now: Tick, out: &mut Vec<Order>) -> Progress {
        self.phase = Phase::Handshaking;
        note(self.journey.begin(Step::KitHandshakePerform, now));
        if let Some(byte) = self.finish {
            return self.handle(News::Finish(byte), now, out);
        }
        if self.plan.wants_port(self.journey.route()) {
            out.push(Order::Ping);
        }
        Progress::Nothing
    }

    /// Whether the process that says it is up told what is needed.
    fn judge(&mut self, response: &Response) -> Result<Vec<Socket>, Trouble> {
        let (records, bad) = response.records();
        for record in records {
            self.journey.load(record);
        }
        if let Some(bad) = bad {
            return Err(Trouble::BadStep(bad.step, bad.text));
        }
        let route = self.journey.route();
        let mut sockets = match &response.properties {
            Properties::Missing if self.plan.wants_port(route) => Vec::new(),
            Properties::Missing => return Err(Trouble::NoProperties),
            Properties::TooLong => {
                let fault = format!("is longer than {} bytes", properties::MOST_BYTES);
                return Err(Trouble::Properties(vec![fault]));
            }
            Properties::Bytes(bytes) => properties::parse(bytes).map_err(Trouble::Properties)?,
        };
        if let (true, Some(port)) = (self.plan.wants_port(route), response.port) {
            let own = Socket::generic(&self.plan.bind_address.to_string(), port);
            if !sockets.iter().any(|socket| socket.address == own.address) {
                sockets.push(own);
            }
        }
        properties::check(&sockets, &response.found, &self.plan, route).map_err(Trouble::Properties)?;
        Ok(sockets)
    }

    fn arrive(&mut self, sockets: Vec<Socket>, now: Tick, out: &mut Vec<Order>) -> Progress {
        self.sockets = sockets;
        note(self.journey.perform(Step::KitHandshakePerform, now));
        note(self.journey.perform(Step::KitFinish, now));
        (self.phase, self.due) = (Phase::Over, None);
        out.push(Order::Settle);
        Progress::Up
    }

    /// Waits for a preloader. That has a time of its own to start, and may have to be ended first.
    fn wait(&mut self, now: Tick) {
        self.phase = Phase::Waiting;
        self.deadline = now + self.plan.start_timeout * 2;
        note(self.journey.begin(Step::KitConnectToPreloader, now));
    }

    /// Something failed: the way back begins, unless it has begun already.
    fn fail(&mut self, trouble: Trouble, now: Tick, out: &mut Vec<Order>) -> Progress {
        match self.phase {
            Phase::Flushing | Phase::Examining | Phase::Killing | Phase::Sweeping | Phase::Over => {
                return Progress::Nothing;
            }
            Phase::Preparing
            | Phase::Forking
            | Phase::Waiting
            | Phase::Connecting
            | Phase::Sending
            | Phase::Reading
            | Phase::Adopting
            | Phase::Handshaking
            | Phase::Checking => {}
        }
        self.trouble = Some(trouble);
        self.due = None;
        if !self.prepared {
            return self.give_up(out);
        }
        let silent = self.pid.is_none() || (self.exited && self.output_ended);
        if silent {
            return self.examine(out);
        }
        self.phase = Phase::Flushing;
        self.due = Some(now + LAST_WORDS);
        Progress::Nothing
    }

    fn examine(&mut self, out: &mut Vec<Order>) -> Progress {
        (self.phase, self.due) = (Phase::Examining, None);
        out.push(Order::Load);
        Progress::Nothing
    }

    fn kill(&mut self, now: Tick, out: &mut Vec<Order>) -> Progress {
        if self.pid.is_none() {
            return self.give_up(out);
        }
        if self.exited {
            return self.sweep(out);
        }
        self.phase = Phase::Killing;
        self.due = Some(now + KILLED);
        out.push(Order::Kill);
        Progress::Nothing
    }

    fn sweep(&mut self, out: &mut Vec<Order>) -> Progress {
        (self.phase, self.due, self.sweeps) = (Phase::Sweeping, None, 0);
        // The group of a process that has ended may live on.
        out.push(Order::Kill);
        out.push(Order::Sweep);
        Progress::Nothing
    }

    fn swept(&mut self, left: usize, now: Tick, out: &mut Vec<Order>) -> Progress {
        self.sweeps += 1;
        if left > 0 && self.sweeps < MOST_SWEEPS {
            self.due = Some(now + SWEEP_PAUSE);
            return Progress::Nothing;
        }
        self.left = left;
        self.due = None;
        if self.trouble.is_none() {
            self.begin_again(now, out);
            return Progress::Nothing;
        }
        self.give_up(out)
    }

    /// Another port, another process; the time goes on.
    fn begin_again(&mut self, now: Tick, out: &mut Vec<Order>) {
        self.journey.reset();
        note(self.journey.begin(Step::KitPreparation, now));
        (self.pid, self.died, self.response, self.finish) = (None, None, None, None);
        (self.exited, self.output_ended, self.prepared, self.taken) = (false, false, false, false);
        self.phase = Phase::Preparing;
        out.push(Order::PrepareAgain);
    }

    fn give_up(&mut self, out: &mut Vec<Order>) -> Progress {
        (self.phase, self.due) = (Phase::Over, None);
        let sockets = match self.response.as_deref().map(|response| &response.properties) {
            Some(Properties::Bytes(bytes)) => properties::parse(bytes).unwrap_or_default(),
            Some(Properties::Missing | Properties::TooLong) | None => Vec::new(),
        };
        let sockets = sockets.into_iter().map(|socket| socket.address).collect();
        out.push(Order::Discard { sockets });
        Progress::Failed
    }

    /// What must be true at all times.
    pub(super) fn invariants(&self) {
        if PRELOADER_STEPS
            .iter()
            .any(|step| self.journey.state(*step) == State::InProgress)
        {
            debug_assert_eq!(self.journey.route(), Route::SpawnThroughPreloader);
        }
        let waits = matches!(self.phase, Phase::Examining | Phase::Over);
        let sweeping = self.phase == Phase::Sweeping;
        debug_assert!(
            waits || sweeping || self.next_deadline().is_some(),
            "a journey in {:?} waits for nothing",
            self.phase
        );
    }
}

/// Our own steps are begun and ended in their order, by the table above. A step that a port is tried for again is not
/// worth a crash of the master.
fn note(result: Result<(), super::journey::Illegal>) {
    debug_assert!(result.is_ok(), "{result:?}");
}
