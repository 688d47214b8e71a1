//! Has the daemon carry out orders, which it checks by the rights of this program's user.

use crate::screen::Order;
use forkyard_host::control::ask;
use forkyard_protocol::control::{Answer, Format, Request};
use std::path::Path;

/// What came of an order.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A line.
    Message(String),
    /// A title and a text.
    Text(String, String),
}

/// Carries out an order, and waits for the answer.
pub(crate) fn carry_out(order: Order, socket: &Path) -> Outcome {
    let request = match &order {
        Order::RestartPool(pool) => Request::RestartPool {
            pool: pool.clone(),
            wait: false,
        },
        Order::RestartApplication(name) => Request::Restart {
            application: name.into(),
            rolling: None,
            start: false,
        },
        Order::EndRequest(pid) => Request::Terminate { pid: *pid },
        Order::Report(id) => Request::Error {
            id: id.clone(),
            format: Format::Text,
        },
    };
    match ask(socket, &request) {
        Ok(Answer::Report { report }) => {
            let title = match order {
                Order::Report(Some(id)) => format!("report {id}"),
                _ => "the last report".to_owned(),
            };
            Outcome::Text(
                title,
                report.as_str().map_or_else(|| report.to_string(), str::to_owned),
            )
        }
        Ok(Answer::Done { .. } | Answer::Reloaded(_)) => Outcome::Message(match order {
            Order::RestartPool(pool) => format!("pool {pool} gets new processes"),
            Order::RestartApplication(name) => format!("{name} gets new instances"),
            Order::EndRequest(pid) => format!("process {pid} is told to end its request"),
            Order::Report(_) => String::new(),
        }),
        Ok(Answer::Error { message, .. }) => Outcome::Message(message),
        Ok(_) => Outcome::Message("the daemon answers something else".to_owned()),
        Err(error) => Outcome::Message(error.to_string()),
    }
}
