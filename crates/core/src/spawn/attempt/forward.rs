//! The way to a process that is up.

use super::{Attempt, Phase, Progress, note};
use crate::spawn::action::Order;
use crate::spawn::error::Trouble;
use crate::spawn::event::News;
use crate::spawn::handshake::properties::{self, Socket};
use crate::spawn::handshake::response::{Properties, Response};
use crate::spawn::preloader::wire::{self, Answer};
use crate::spawn::step::{Route, Step};
use crate::tick::Tick;

impl Attempt {
    pub(super) fn prepared(&mut self, now: Tick, out: &mut Vec<Order>) -> Progress {
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

    pub(super) fn advance(&mut self, phase: Phase, (done, next): (Step, Step), now: Tick) -> Progress {
        self.phase = phase;
        note(self.journey.perform(done, now));
        note(self.journey.begin(next, now));
        Progress::Nothing
    }

    pub(super) fn answered(&mut self, line: &[u8], now: Tick, out: &mut Vec<Order>) -> Progress {
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

    pub(super) fn handshake(&mut self, now: Tick, out: &mut Vec<Order>) -> Progress {
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
    pub(super) fn judge(&mut self, response: &Response) -> Result<Vec<Socket>, Trouble> {
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

    pub(super) fn arrive(&mut self, sockets: Vec<Socket>, now: Tick, out: &mut Vec<Order>) -> Progress {
        self.sockets = sockets;
        note(self.journey.perform(Step::KitHandshakePerform, now));
        note(self.journey.perform(Step::KitFinish, now));
        (self.phase, self.due) = (Phase::Over, None);
        out.push(Order::Settle);
        Progress::Up
    }

    /// Waits for a preloader. That has a time of its own to start, and may have to be ended first.
    pub(super) fn wait(&mut self, now: Tick) {
        self.phase = Phase::Waiting;
        self.deadline = now + self.plan.start_timeout * 2;
        note(self.journey.begin(Step::KitConnectToPreloader, now));
    }
}
