//! How a web server's HTTP connection ends.

use super::event_loop::Gateway;
use super::front::Visit;
use super::links::User;
use crate::sys::clock;
use crate::sys::socket::{Progress, shutdown_write};
use crate::worker::When;
use std::os::fd::AsFd;
use std::time::Duration;

/// Limits for discarding data of a client that has not read its answer.
const LINGER_LIMIT: Duration = Duration::from_secs(5);
const LINGER_BYTES: usize = 64 * 1024 * 1024;
const HURRY_LIMIT: Duration = Duration::from_secs(1);

impl Gateway {
    pub(super) fn refuse_visit(&mut self, index: usize, status: &str, why: &str) {
        self.release(User::Visit(index), false);
        let Some(visit) = self.visits.get_mut(index) else {
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
        self.set_due(
            User::Visit(index),
            Some(clock::now() + self.worker.client_timeout()),
        );
        self.more.push(User::Visit(index));
    }

    pub(super) fn give_rest(&mut self, index: usize) -> bool {
        let Some(visit) = self.visits.get_mut(index) else {
            return false;
        };
        match visit.give(&self.epoll) {
            Err(_) => self.end_visit(index),
            Ok(_) if visit.given == visit.answer.len() => self.close_visit(index),
            Ok(_) => {}
        }
        false
    }

    fn tell_over(&mut self, index: usize) {
        let Some(visit) = self.visits.get_mut(index) else {
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

    /// Lingers before closing: closing with unread client data resets the connection, and the answer is lost.
    pub(super) fn close_visit(&mut self, index: usize) {
        let Some(visit) = self.visits.get_mut(index) else {
            return;
        };
        shutdown_write(visit.client.socket.as_fd());
        if visit.is_read() {
            return self.end_visit(index);
        }
        visit.lingers = Some(LINGER_BYTES);
        visit.input = Vec::new();
        self.release(User::Visit(index), false);
        self.tell_over(index);
        self.set_due(User::Visit(index), Some(clock::now() + LINGER_LIMIT));
        self.more.push(User::Visit(index));
    }

    pub(super) fn drop_input(&mut self, index: usize) -> bool {
        let Some(visit) = self.visits.get_mut(index) else {
            return false;
        };
        if !visit.client.readable {
            return false;
        }
        match (visit.client.receive(&mut self.scratch), visit.lingers) {
            (Ok(Progress::WouldBlock), _) => {}
            (Ok(Progress::Done(count @ 1..)), Some(left)) if count < left => {
                visit.lingers = Some(left - count);
                return true;
            }
            _ => self.end_visit(index),
        }
        false
    }

    pub(super) fn hurry_visits(&mut self) {
        let until = clock::now() + HURRY_LIMIT;
        let is_new = |visit: &Visit| visit.token.is_none() && !visit.program_ended && visit.lingers.is_none();
        let new = self.visits.iter().filter(|(_, visit)| is_new(visit));
        let new: Vec<usize> = new.map(|(index, _)| index).collect();
        for index in new {
            self.set_due(User::Visit(index), Some(until));
        }
    }

    pub(super) fn end_visit(&mut self, index: usize) {
        self.release(User::Visit(index), false);
        self.tell_over(index);
        self.visits.try_remove(index);
    }
}
