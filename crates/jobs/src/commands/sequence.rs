use super::{For, LONGEST_NAME, Plan, checked, may_use, not_own, own_queues};
use crate::client::Rights;
use crate::store::{Operation, SequenceOperation};
use forkyard_config::Jobs;
use forkyard_protocol::jobs::{SequenceAdd, SequenceBegin};

const LISTED: u32 = 100;

fn wanted(operation: SequenceOperation) -> Plan {
    Plan::Store(Operation::Sequence(operation), For::Sequence)
}

pub(super) fn add(request: SequenceAdd, rights: Rights, jobs: &Jobs) -> Result<Plan, String> {
    Ok(wanted(SequenceOperation::Add {
        id: request.id,
        queues: own_queues(rights, jobs),
        from: request.from,
        jobs: checked(request.jobs, rights, jobs)?,
    }))
}

pub(super) fn end(id: i64, rights: Rights, jobs: &Jobs) -> Plan {
    let queues = own_queues(rights, jobs);
    wanted(SequenceOperation::End { id, queues })
}

pub(super) fn show(id: i64, rights: Rights, jobs: &Jobs) -> Plan {
    let queues = own_queues(rights, jobs);
    wanted(SequenceOperation::Show { id, queues })
}

pub(super) fn cancel(id: i64, rights: Rights, jobs: &Jobs) -> Plan {
    let queues = own_queues(rights, jobs);
    wanted(SequenceOperation::Cancel { id, queues })
}

pub(super) fn list(limit: Option<u32>) -> Plan {
    let limit = limit.unwrap_or(LISTED);
    wanted(SequenceOperation::List { limit })
}

pub(super) fn begin(request: SequenceBegin, rights: Rights, jobs: &Jobs) -> Result<Plan, String> {
    let SequenceBegin { queue, name, total } = request;
    if jobs.queues.iter().all(|known| known.name != queue) {
        return Err(format!("there is no queue \"{queue}\""));
    }
    if !may_use(rights, jobs, &queue) {
        return Err(not_own(&queue));
    }
    let is_plain =
        |name: &String| !name.is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control);
    if !name.as_ref().is_none_or(is_plain) {
        return Err(format!("name has 1 to {LONGEST_NAME} bytes that can be seen"));
    }
    Ok(wanted(SequenceOperation::Begin { queue, name, total }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::jobs;

    fn read(line: &str, rights: Rights) -> Result<SequenceOperation, String> {
        match super::super::read(line.as_bytes(), rights, &jobs())? {
            Plan::Store(Operation::Sequence(operation), For::Sequence) => Ok(operation),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_user_has_sequences_of_its_queues_alone() {
        let begin =
            |queue: &str| format!(r#"{{"command":"sequence-begin","queue":"{queue}","name":"n","total":7}}"#);
        let operation = read(&begin("mail"), Rights::Own(33)).expect("a sequence");
        let (queue, name, total) = ("mail".into(), Some("n".into()), Some(7));
        assert_eq!(operation, SequenceOperation::Begin { queue, name, total });
        assert!(
            read(&begin("other"), Rights::Own(33))
                .expect_err("refused")
                .contains("may not use")
        );
        assert!(
            read(&begin("nosuch"), Rights::All)
                .expect_err("refused")
                .contains("no queue")
        );
        let add = r#"{"command":"sequence-add","id":1,"from":0,"jobs":[{"queue":"other","kind":"k"}]}"#;
        assert!(
            read(add, Rights::Own(33))
                .expect_err("refused")
                .contains("may not use")
        );
        let show = read(r#"{"command":"sequence-show","id":1}"#, Rights::Own(33));
        let queues = Some(vec!["mail".to_owned()]);
        assert_eq!(show, Ok(SequenceOperation::Show { id: 1, queues }));
        assert!(read(r#"{"command":"sequence-list"}"#, Rights::Own(33)).is_err());
        assert!(read(r#"{"command":"sequence-list"}"#, Rights::All).is_ok());
    }

    #[test]
    fn what_is_missing_is_said() {
        for (line, word) in [
            (r#"{"command":"sequence-begin"}"#, "missing field `queue`"),
            (
                r#"{"command":"sequence-begin","queue":"mail","name":""}"#,
                "name has 1",
            ),
            (r#"{"command":"sequence-end"}"#, "missing field `id`"),
            (
                r#"{"command":"sequence-add","id":1,"from":0,"jobs":[]}"#,
                "job is missing",
            ),
            (r#"{"command":"sequence-fly"}"#, "there is no command"),
        ] {
            let why = read(line, Rights::All).expect_err(line);
            assert!(why.contains(word), "{line}: {why}");
        }
    }
}
