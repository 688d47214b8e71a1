use super::*;

#[test]
fn requests_are_as_documented() {
    let read = |text| serde_json::from_str::<Request>(text).ok();
    assert_eq!(read(r#"{"command":"ping"}"#), Some(Request::Ping {}));
    assert_eq!(
        read(r#"{"command":"status"}"#),
        Some(Request::Status { caches: false })
    );
    assert_eq!(read(r#"{"command":"upgrade"}"#), Some(Request::Upgrade {}));
    assert_eq!(
        read(r#"{"command":"reload"}"#),
        Some(Request::Reload {
            all: false,
            dry_run: false
        })
    );
    assert_eq!(
        read(r#"{"command":"reload","all":true}"#),
        Some(Request::Reload {
            all: true,
            dry_run: false
        })
    );
    assert_eq!(read(r#"{"command":"reload","al":true}"#), None);
    assert_eq!(read(r#"{"command":"dance"}"#), None);
    assert_eq!(read("reload"), None);
}

#[test]
fn answers_are_as_documented() {
    let error = Answer::Error {
        message: "no".into(),
        errors: vec![],
    };
    assert_eq!(
        serde_json::to_string(&error).unwrap(),
        r#"{"result":"error","message":"no"}"#
    );
    let reloaded = Answer::Reloaded(Box::new(Reloaded {
        kept: vec!["www".into()],
        ..Reloaded::default()
    }));
    assert_eq!(
        serde_json::to_string(&reloaded).unwrap(),
        r#"{"result":"reloaded","added":[],"replaced":[],"kept":["www"],"removed":[],"failed":[]}"#
    );
}
