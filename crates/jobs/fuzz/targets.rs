//! Fuzz targets: clients' lines and jobs' answers.

use crate::answer::{self, Bounded};
use crate::client::Rights;
use crate::commands::{self, Plan};
use crate::sample;
use crate::store::{Filter, Operation, Selection, SequenceChange};
use forkyard_fuzz::{Target, target};
use forkyard_protocol::jobs::NewJob;

pub const TARGETS: &[Target] = &[
    target("jobs_requests", 1024, requests),
    target("jobs_answers", 1024, answers),
];

const USER: u32 = 33;

fn requests(line: &[u8]) {
    let jobs = sample::jobs();
    let check = |pushed: &[NewJob]| {
        for job in pushed {
            assert_eq!(job.queue, "mail");
            assert!(job.payload.len() as u64 <= jobs.max_payload && !job.kind.contains(char::is_control));
        }
    };
    let own = Some(vec!["mail".to_owned()]);
    match commands::read(line, Rights::Own(USER), &jobs) {
        Ok(Plan::Push(pushed, _)) => check(&pushed),
        Ok(Plan::Store(Operation::Sequence(_, queues, change), _)) => {
            assert_eq!(queues, own);
            if let SequenceChange::Add { jobs, .. } = change {
                check(&jobs);
            }
        }
        Ok(Plan::Store(Operation::Change(_, selection), _)) => match selection {
            Selection::One(_, queues)
            | Selection::All(Filter { queues, .. })
            | Selection::Rest(Filter { queues, .. }, ..) => assert_eq!(queues, own),
            Selection::Ref(queue, _) => assert_eq!(queue, "mail"),
        },
        Ok(Plan::Store(operation, _)) => {
            let is_own = match &operation {
                Operation::Show(_) | Operation::Counts => true,
                Operation::ShowRef(queue, _) => queue == "mail",
                Operation::List(filter) | Operation::Count(filter) => filter.queues == own,
                Operation::Pause { queue, .. } | Operation::BeginSequence { queue, .. } => queue == "mail",
                Operation::Progress(progress) => progress.queues == own,
                _ => false,
            };
            assert!(is_own, "{operation:?}");
        }
        Ok(Plan::Wait(Operation::ShowRef(queue, _), _)) => assert_eq!(queue, "mail"),
        Ok(Plan::Wait(..)) | Err(_) => {}
        Ok(Plan::Schedules | Plan::RunNow(_) | Plan::Kinds | Plan::Connections) => {
            panic!("a user does what is root's")
        }
    }
    let _ = commands::read(line, Rights::All, &jobs);
}

/// Answers of any bytes are read, and notices are the same in pieces.
fn answers(bytes: &[u8]) {
    const MOST: usize = 100;
    let (_, output) = answer::read(bytes, 0);
    assert!(bytes.ends_with(&output.result));
    if let Some((percent, text)) = answer::progress(bytes) {
        assert!(percent <= 100 && text.chars().count() <= 200);
    }
    let (mut whole, mut pieces) = (Bounded::new(MOST), Bounded::new(MOST));
    whole.push(bytes);
    bytes.chunks(7).for_each(|piece| pieces.push(piece));
    let kept = whole.take();
    assert_eq!(kept, pieces.take());
    assert!(kept.len() <= MOST + 40);
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_parser_keeps_its_promises_whatever_it_is_given() {
        forkyard_fuzz::check(super::TARGETS);
    }
}
