//! Handles requests without a complete answer.

use super::super::answer::Malformed;
use super::exchange::Exchange;
use super::run::{BAD_GATEWAY, Gateway};

const MOST_ASKED: u32 = 2;

enum Outcome {
    Nothing,
    Failed(String),
    Cut(String),
}

impl Gateway {
    pub(super) fn ended(&mut self, index: usize) {
        let Some(exchange) = &mut self.exchanges[index] else {
            return;
        };
        let cut = "it closed the connection in the middle of its answer";
        let has_finished = exchange.may_end() || exchange.has_switched();
        self.links.tell(exchange.chosen.flatten(), has_finished);
        if exchange.may_end() {
            self.release(index, false);
            self.answer(index, &[], true);
        } else if exchange.has_begun() {
            self.conclude(index, Outcome::Cut(cut.to_owned()));
        } else if exchange.is_untouched() {
            self.conclude(index, Outcome::Nothing);
        } else {
            self.conclude(index, Outcome::Failed(format!("{cut}'s head")));
        }
    }

    pub(super) fn malformed(&mut self, index: usize, malformed: &Malformed) {
        let has_begun = self.exchanges[index].as_ref().is_some_and(Exchange::has_begun);
        let outcome = if has_begun {
            Outcome::Cut(malformed.to_string())
        } else {
            Outcome::Failed(malformed.to_string())
        };
        self.conclude(index, outcome);
    }

    fn conclude(&mut self, index: usize, outcome: Outcome) {
        let Some(exchange) = &mut self.exchanges[index] else {
            return;
        };
        let why = match outcome {
            Outcome::Nothing if exchange.may_repeat => {
                let was_kept = exchange
                    .link
                    .and_then(|id| self.links.get(id))
                    .is_some_and(|link| link.is_used);
                // The process may have closed a kept connection while the request was on its way.
                if was_kept || exchange.asked + 1 < MOST_ASKED {
                    if was_kept {
                        exchange.tried.clear();
                    } else {
                        exchange.asked += 1;
                        exchange.failed = exchange.chosen.flatten();
                        exchange.pauses = 0;
                    }
                    exchange.again();
                    self.release(index, false);
                    return self.send_on(index);
                }
                "it closed the connection without an answer".to_owned()
            }
            Outcome::Nothing => "it closed the connection without an answer".to_owned(),
            Outcome::Cut(why) => {
                log::error!("an answer of the application is cut short: {why}");
                let token = exchange.token;
                self.forget(index);
                return self.worker.abandon(token);
            }
            Outcome::Failed(why) => why,
        };
        log::error!("the application gave no answer: {why}");
        self.refuse(index, BAD_GATEWAY, "the application gave no answer");
    }

    pub(super) fn refuse(&mut self, index: usize, status: &str, why: &str) {
        self.release(index, false);
        let Some(exchange) = &self.exchanges[index] else {
            return;
        };
        self.worker.send_error(exchange.token, why.as_bytes());
        let text = format!("Status: {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{why}\n");
        self.answer(index, text.as_bytes(), true);
    }
}
