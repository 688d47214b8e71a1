//! Lines of clients.

use super::*;
use crate::sample::jobs;

fn pushed(line: &str, rights: Rights) -> Result<Vec<NewJob>, String> {
    match read(line.as_bytes(), rights, &jobs())? {
        Wanted::Store(Operation::Push(jobs), For::Push) => Ok(jobs),
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
    let none = r#"{"command":"push","job":{"queue":"mail","kind":"k"}}"#;
    assert_eq!(pushed(none, Rights::All).expect("a job")[0].payload, b"");
}

#[test]
fn what_is_wrong_is_told() {
    let long = "x".repeat(101);
    let cases = [
        (r#"{"command":"push"}"#.to_owned(), "job is missing"),
        (
            r#"{"command":"push","job":{"queue":"mial","kind":"k"}}"#.to_owned(),
            "no queue \"mial\"",
        ),
        (
            r#"{"command":"push","job":{"queue":"mail","kind":"a b"}}"#.to_owned(),
            "kind has",
        ),
        (
            r#"{"command":"push","job":{"queue":"mail","kind":"k","prio":1}}"#.to_owned(),
            "unknown field",
        ),
        (
            r#"{"command":"push","job":{"queue":"mail","kind":"k","key":""}}"#.to_owned(),
            "key has",
        ),
        (
            format!(r#"{{"command":"push","job":{{"queue":"mail","kind":"k","payload":"{long}"}}}}"#),
            "max_payload",
        ),
        (r#"{"command":"fly"}"#.to_owned(), "no command \"fly\""),
        (r#"{"command":"retry"}"#.to_owned(), "name a job by id"),
        (
            r#"{"command":"retry","state":"done"}"#.to_owned(),
            "failed, quarantined",
        ),
        (
            r#"{"command":"list","state":"lost"}"#.to_owned(),
            "no state \"lost\"",
        ),
        ("nonsense".to_owned(), "this is no request"),
    ];
    for (line, expected) in cases {
        let why = read(line.as_bytes(), Rights::All, &jobs()).expect_err(&line);
        assert!(why.contains(expected), "{line}: {why}");
    }
}

#[test]
fn users_have_their_own_queues_alone() {
    let other = r#"{"command":"push","job":{"queue":"other","kind":"k"}}"#;
    assert!(
        pushed(other, Rights::Own(33))
            .expect_err("refused")
            .contains("push_users")
    );
    for line in [
        r#"{"command":"list"}"#,
        r#"{"command":"pause","queue":"mail"}"#,
        r#"{"command":"stats"}"#,
        r#"{"command":"retry","state":"failed"}"#,
        r#"{"command":"run-now","schedule":"s"}"#,
    ] {
        let why = read(line.as_bytes(), Rights::Own(33), &jobs()).expect_err(line);
        assert!(why.contains("only root"), "{line}: {why}");
    }
    let cancel = read(br#"{"command":"cancel","id":5}"#, Rights::Own(33), &jobs());
    assert!(matches!(
        cancel,
        Ok(Wanted::Store(Operation::Cancel(Selection::One(5, Some(queues))), For::Change)) if queues == ["mail"]
    ));
    assert!(may_use(Rights::Own(33), &jobs(), "mail") && !may_use(Rights::Own(34), &jobs(), "mail"));
}
