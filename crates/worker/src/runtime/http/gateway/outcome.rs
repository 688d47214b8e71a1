//! Handles requests without a complete answer.

use super::super::answer::Malformed;
use super::event_loop::Gateway;
use super::exchange::Exchange;
use super::links::User;

enum Outcome {
    Nothing,
    Failed(String),
    Cut(String),
}

impl Gateway {
    pub(super) fn ended(&mut self, index: usize) {
        let Some(exchange) = self.exchanges.get_mut(index) else {
            return;
        };
        let cut = "it closed the connection in the middle of its answer";
        let has_finished = exchange.may_end() || exchange.has_switched();
        self.links.tell(exchange.upstream.process(), has_finished);
        if exchange.may_end() {
            self.release(User::Exchange(index), false);
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
        let has_begun = self.exchanges.get(index).is_some_and(Exchange::has_begun);
        let outcome = if has_begun {
            Outcome::Cut(malformed.to_string())
        } else {
            Outcome::Failed(malformed.to_string())
        };
        self.conclude(index, outcome);
    }

    fn conclude(&mut self, index: usize, outcome: Outcome) {
        let Some(exchange) = self.exchanges.get_mut(index) else {
            return;
        };
        let user = User::Exchange(index);
        let why = match outcome {
            Outcome::Nothing => {
                let link = exchange.upstream.link.and_then(|id| self.links.get(id));
                let was_kept = link.is_some_and(|link| link.is_used);
                if exchange.may_repeat && exchange.upstream.may_ask_again(was_kept) {
                    exchange.again();
                    self.release(user, false);
                    return self.try_again(user);
                }
                "it closed the connection without an answer".to_owned()
            }
            Outcome::Cut(why) => {
                log::error!("an answer of the application is cut short: {why}");
                let token = exchange.token;
                self.forget(index);
                return self.worker.abandon(token);
            }
            Outcome::Failed(why) => why,
        };
        self.refuse_unanswered(user, &why);
    }

    pub(super) fn refuse_exchange(&mut self, index: usize, status: &str, why: &str) {
        self.release(User::Exchange(index), false);
        let Some(exchange) = self.exchanges.get(index) else {
            return;
        };
        self.worker.send_error(exchange.token, why.as_bytes());
        let text = format!("Status: {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n{why}\n");
        self.answer(index, text.as_bytes(), true);
    }
}
