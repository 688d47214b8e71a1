use super::*;
use crate::sample::jobs;

fn pushed(line: &str, rights: Rights) -> Result<Vec<NewJob>> {
    match read(line.as_bytes(), rights, &jobs())? {
        Plan::Push(jobs, _) => Ok(jobs),
        other => panic!("{other:?}"),
    }
}

#[test]
fn jobs_are_pushed_with_their_payload_as_it_is_written() {
    let line = r#"{"command":"push","job":{"queue":"mail","kind":"welcome","payload":{"b": 1.0, "a":[1]},"in_ms":5}}"#;
    let jobs = pushed(line, Rights::Own(33)).expect("a job");
    assert_eq!(jobs[0].payload, br#"{"b": 1.0, "a":[1]}"#);
    let text = r#"{"command":"push","jobs":[{"queue":"mail","kind":"k","payload":"a\nb","content_type":"text/plain"}]}"#;
    assert_eq!(pushed(text, Rights::All).expect("a job")[0].payload, b"a\nb");
    let bytes = r#"{"command":"push","job":{"queue":"mail","kind":"Closure (web.php:12) #ü?","payload_base64":"AP/+"}}"#;
    let job = pushed(bytes, Rights::All).expect("a job").remove(0);
    assert_eq!(job.payload, b"\0\xff\xfe");
    assert_eq!(job.content_type.as_deref(), Some("application/octet-stream"));
    let none = r#"{"command":"push","job":{"queue":"mail","kind":"k"}}"#;
    assert_eq!(pushed(none, Rights::All).expect("a job")[0].payload, b"");
}

#[test]
fn what_is_wrong_is_told() {
    let long = |count: usize| "x".repeat(count);
    let push = |job: &str| format!(r#"{{"command":"push","job":{{{job}}}}}"#);
    let of_mail = |fields: &str| push(&format!(r#""queue":"mail","kind":"k",{fields}"#));
    let command = |fields: &str| format!(r#"{{"command":{fields}}}"#);
    for (line, expected) in [
        (command(r#""push""#), "job is missing"),
        (push(r#""queue":"mial","kind":"k""#), "no queue \"mial\""),
        (push(r#""queue":"mail","kind":"a\nb""#), "kind has"),
        (
            push(&format!(r#""queue":"mail","kind":"{}""#, long(256))),
            "kind has",
        ),
        (of_mail(r#""payload_base64":"?""#), "no base64"),
        (of_mail(r#""payload":1,"payload_base64":"MQ""#), "give one"),
        (of_mail(r#""prio":1"#), "unknown field"),
        (of_mail(r#""key":"""#), "key has"),
        (of_mail(&format!(r#""ref":"{}""#, long(65))), "ref has 1 to 64"),
        (of_mail(&format!(r#""payload":"{}""#, long(101))), "max_payload"),
        (command(r#""list","status":"bad""#), "no status \"bad\""),
        (command(r#""list","state":"lost""#), "no state \"lost\""),
        (command(r#""fly""#), "no command \"fly\""),
        (command(r#""sequence-fly""#), "no command \"sequence-fly\""),
        (command(r#""retry""#), "name a job by id"),
        (command(r#""retry","state":"running""#), "failed, quarantined"),
        (command(r#""show""#), "name a job by id, or by queue and ref"),
        (
            command(r#""wait","id":1,"queue":"mail","ref":"r""#),
            "not by both",
        ),
        (command(r#""sequence-begin""#), "missing field `queue`"),
        (
            command(r#""sequence-begin","queue":"mail","name":"""#),
            "name has 1",
        ),
        (command(r#""sequence-end""#), "missing field `id`"),
        (
            command(r#""sequence-add","id":1,"from":0,"jobs":[]"#),
            "job is missing",
        ),
        ("nonsense".to_owned(), "this is no request"),
    ] {
        let why = read(line.as_bytes(), Rights::All, &jobs())
            .expect_err(&line)
            .to_string();
        assert!(why.contains(expected), "{line}: {why}");
    }
}

#[test]
fn users_have_their_own_queues_alone() {
    let other = r#"{"command":"push","job":{"queue":"other","kind":"k"}}"#;
    assert!(
        pushed(other, Rights::Own(33))
            .expect_err("refused")
            .to_string()
            .contains("push_users")
    );
    for line in [
        r#"{"command":"run-now","schedule":"s"}"#,
        r#"{"command":"schedules"}"#,
        r#"{"command":"kinds"}"#,
        r#"{"command":"connections"}"#,
        r#"{"command":"sequence-list"}"#,
    ] {
        let why = read(line.as_bytes(), Rights::Own(33), &jobs())
            .expect_err(line)
            .to_string();
        assert!(why.contains("only root"), "{line}: {why}");
        assert!(read(line.as_bytes(), Rights::All, &jobs()).is_ok(), "{line}");
    }
    for command in ["list", "count", "pause", "resume"] {
        let line = format!(r#"{{"command":"{command}","queue":"other"}}"#);
        let why = read(line.as_bytes(), Rights::Own(33), &jobs())
            .expect_err(&line)
            .to_string();
        assert!(why.contains("may not use queue"), "{line}: {why}");
        let own = line.replace("other", "mail");
        assert!(read(own.as_bytes(), Rights::Own(33), &jobs()).is_ok(), "{own}");
    }
    let cancel = read(br#"{"command":"cancel","id":5}"#, Rights::Own(33), &jobs());
    assert!(matches!(
        cancel,
        Ok(Plan::Store(Operation::Change(Change::Cancel, Selection::One(5, Some(queues))), For::Answer)) if queues == ["mail"]
    ));
    assert!(may_use(Rights::Own(33), &jobs(), "mail") && !may_use(Rights::Own(34), &jobs(), "mail"));
}

/// `retry`, `cancel` and `discard` with each combination of fields, for root and for a user of `mail`.
#[test]
fn every_combination_of_what_selects_jobs_is_defined() {
    let values = [
        ("id", "5"),
        ("ref", "\"r\""),
        ("state", "\"S\""),
        ("queue", "\"mail\""),
        ("tenant", "\"t\""),
        ("kind", "\"k\""),
    ];
    let states = [
        ("retry", State::Failed),
        ("cancel", State::Waiting),
        ("discard", State::Quarantined),
    ];
    for (command, state) in states {
        for bits in 0..1_u32 << values.len() {
            for rights in [Rights::All, Rights::Own(33)] {
                let has = |name: &str| {
                    let at = values.iter().position(|(known, _)| *known == name);
                    at.is_some_and(|at| bits & 1 << at != 0)
                };
                let mut line = format!(r#"{{"command":"{command}""#);
                for (name, value) in values.iter().filter(|(name, _)| has(name)) {
                    line += &format!(r#","{name}":{}"#, value.replace('S', state.name()));
                }
                line.push('}');
                let own = (rights != Rights::All).then(|| vec!["mail".to_owned()]);
                let expected = match (has("id"), has("state")) {
                    (true, _) if bits != 1 => Err("id names one job"),
                    (true, _) => Ok(Selection::One(5, own)),
                    _ if has("ref") => match bits {
                        0b1010 => Ok(Selection::Ref("mail".to_owned(), "r".to_owned())),
                        _ => Err("ref names one job of a queue"),
                    },
                    (false, true) => Ok(Selection::All(Filter {
                        queues: match has("queue") {
                            true => Some(vec!["mail".to_owned()]),
                            false => own,
                        },
                        state: Some(state),
                        tenant: has("tenant").then(|| "t".to_owned()),
                        kind: has("kind").then(|| "k".to_owned()),
                        ..Filter::default()
                    })),
                    (false, false) => Err("or all of a state"),
                };
                let found = match read(line.as_bytes(), rights, &jobs()) {
                    Ok(Plan::Store(Operation::Change(_, selection), For::Answer)) => Ok(selection),
                    Ok(other) => panic!("{line}: {other:?}"),
                    Err(why) => Err(why.to_string()),
                };
                match (found, expected) {
                    (Err(why), Err(says)) => assert!(why.contains(says), "{line}: {why}"),
                    (found, expected) => {
                        assert_eq!(found, expected.map_err(str::to_owned), "{line}");
                    }
                }
            }
        }
        let other = format!(
            r#"{{"command":"{command}","state":"{}","queue":"other"}}"#,
            state.name()
        );
        assert!(read(other.as_bytes(), Rights::All, &jobs()).is_ok());
        let why = read(other.as_bytes(), Rights::Own(33), &jobs())
            .expect_err(&other)
            .to_string();
        assert!(why.contains("may not use queue"), "{why}");
    }
}

fn sequence(line: &str, rights: Rights) -> Result<Operation> {
    match read(line.as_bytes(), rights, &jobs())? {
        Plan::Store(operation, For::Answer) => Ok(operation),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_user_has_sequences_of_its_queues_alone() {
    let begin =
        |queue: &str| format!(r#"{{"command":"sequence-begin","queue":"{queue}","name":"n","total":7}}"#);
    let operation = sequence(&begin("mail"), Rights::Own(33)).expect("a sequence");
    let (queue, name, total) = ("mail".into(), Some("n".into()), Some(7));
    assert_eq!(operation, Operation::BeginSequence { queue, name, total });
    assert!(
        sequence(&begin("other"), Rights::Own(33))
            .expect_err("refused")
            .to_string()
            .contains("may not use")
    );
    assert!(
        sequence(&begin("nosuch"), Rights::All)
            .expect_err("refused")
            .to_string()
            .contains("no queue")
    );
    let add = r#"{"command":"sequence-add","id":1,"from":0,"jobs":[{"queue":"other","kind":"k"}]}"#;
    assert!(
        sequence(add, Rights::Own(33))
            .expect_err("refused")
            .to_string()
            .contains("may not use")
    );
    let show = sequence(r#"{"command":"sequence-show","id":1}"#, Rights::Own(33));
    let queues = Some(vec!["mail".to_owned()]);
    assert_eq!(
        show.expect("a plan"),
        Operation::Sequence(1, queues, SequenceChange::Nothing)
    );
    assert!(sequence(r#"{"command":"sequence-list"}"#, Rights::Own(33)).is_err());
    assert!(sequence(r#"{"command":"sequence-list"}"#, Rights::All).is_ok());
}
