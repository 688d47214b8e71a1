//! Steps of a journey until the process is up.

use super::{Attempt, AttemptProgress, AttemptState, note};
use crate::spawn::action::JourneyAction;
use crate::spawn::error::Trouble;
use crate::spawn::event::JourneyEvent;
use crate::spawn::handshake::properties::{self, Address, Socket};
use crate::spawn::handshake::response::{Properties, Response};
use crate::spawn::step::Step;
use forkyard_base::tick::Tick;

impl Attempt {
    pub(super) fn prepared(&mut self, now: Tick, out: &mut Vec<JourneyAction>) -> AttemptProgress {
        self.prepared = true;
        note(self.journey.perform(Step::KitPreparation, now));
        self.state = AttemptState::Forking;
        note(self.journey.begin(Step::KitForkSubprocess, now));
        note(self.journey.begin(Step::SubprocessBeforeFirstExec, now));
        out.push(JourneyAction::Fork);
        AttemptProgress::Nothing
    }

    pub(super) fn handshake(&mut self, now: Tick, out: &mut Vec<JourneyAction>) -> AttemptProgress {
        self.state = AttemptState::Handshaking;
        note(self.journey.begin(Step::KitHandshakePerform, now));
        if let Some(byte) = self.finish {
            return self.handle(JourneyEvent::Finish(byte), now, out);
        }
        if self.plan.wants_ping(self.journey.route()) {
            out.push(JourneyAction::Ping);
        }
        AttemptProgress::Nothing
    }

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
            Properties::Missing if self.plan.wants_ping(route) => Vec::new(),
            Properties::Missing => return Err(Trouble::NoProperties),
            Properties::TooLong => {
                let fault = format!("is longer than {} bytes", properties::MOST_BYTES);
                return Err(Trouble::Properties(vec![fault]));
            }
            Properties::Bytes(bytes) => properties::parse(bytes).map_err(Trouble::Properties)?,
        };
        if let Some(path) = &response.socket {
            let own = Socket::at(Address::Unix(path.clone()));
            sockets.retain(|socket| socket.address != own.address);
            sockets.push(own);
        } else if let (true, Some(port)) = (self.plan.wants_port(route), response.port) {
            let own = Socket::generic(&self.plan.bind_address.to_string(), port);
            if !sockets.iter().any(|socket| socket.address == own.address) {
                sockets.push(own);
            }
        }
        properties::check(&sockets, &response.found, &self.plan).map_err(Trouble::Properties)?;
        Ok(sockets)
    }

    pub(super) fn arrive(
        &mut self,
        sockets: Vec<Socket>,
        now: Tick,
        out: &mut Vec<JourneyAction>,
    ) -> AttemptProgress {
        self.sockets = sockets;
        note(self.journey.perform(Step::KitHandshakePerform, now));
        note(self.journey.perform(Step::KitFinish, now));
        (self.state, self.due) = (AttemptState::Over, None);
        out.push(JourneyAction::EndHandshake);
        AttemptProgress::Up
    }
}
