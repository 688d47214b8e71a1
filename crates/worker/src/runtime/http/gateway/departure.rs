//! How a connection of the web server's ends.

use super::front::give;
use super::links::User;
use super::run::Gateway;
use crate::sys::clock;
use crate::sys::socket::shutdown_write;
use crate::worker::When;
use std::os::fd::AsFd;

impl Gateway {
    /// An answer in plain words, and the end.
    pub(super) fn refuse_visit(&mut self, index: usize, status: &str, why: &str) {
        self.release_visit(index);
        self.set_visit_due(index, None);
        let Some(visit) = &mut self.visits[index] else {
            return;
        };
        let number = status.get(..3).and_then(|number| number.parse().ok());
        visit.status = visit.status.or(number);
        visit.answer = format!(
            "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\r\n{why}\n",
            why.len() + 1
        )
        .into_bytes();
        visit.given = 0;
        visit.program_ended = true;
        self.tell_over(index);
        self.set_visit_due(index, Some(clock::now() + self.worker.client_timeout()));
        self.more.push(User::Visit(index));
    }

    /// Gives what is left of an answer, and ends. True: more can be done.
    pub(super) fn give_rest(&mut self, index: usize) -> bool {
        let Some(visit) = &mut self.visits[index] else {
            return false;
        };
        if give(visit, &self.epoll).is_none() || visit.given == visit.answer.len() {
            shutdown_write(visit.client.as_fd());
            self.end_visit(index);
        }
        false
    }

    /// The worker does not count the request any more.
    fn tell_over(&mut self, index: usize) {
        let Some(visit) = &mut self.visits[index] else {
            return;
        };
        let Some(token) = visit.token.take() else { return };
        self.visits_by_token.remove(&token);
        match visit.status {
            Some(status) => {
                let head = format!("Status: {status}\r\n\r\n");
                self.worker.send(token, head.as_bytes(), When::Last);
            }
            None => self.worker.abandon(token),
        }
    }

    pub(super) fn release_visit(&mut self, index: usize) {
        let Some(visit) = &mut self.visits[index] else {
            return;
        };
        if let Some(id) = visit.link.take() {
            self.links.close(id);
        }
        if let Some(chosen) = visit.chosen.take() {
            self.give(chosen);
        }
    }

    /// Closes both connections.
    pub(super) fn end_visit(&mut self, index: usize) {
        self.release_visit(index);
        self.set_visit_due(index, None);
        self.tell_over(index);
        if self.visits[index].take().is_some() {
            self.free_visits.push(index);
        }
    }
}
