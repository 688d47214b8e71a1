//! Messages from a master to its keeper.

use forkyard_protocol::keeper::Message;

pub(super) fn message(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let message = Message::parse(&text);
    if let Some(name) = &message.name {
        assert!((1..=255).contains(&name.len()) && !name.contains([':', '\n', '\0']));
    }
    assert!(message.rest.len() <= text.len() + 1);
    for line in message.rest.lines() {
        let key = line.split('=').next().unwrap_or_default();
        assert!(
            line.contains('=') && !["FDSTORE", "FDSTOREREMOVE", "FDNAME", "MAINPID"].contains(&key),
            "{line}"
        );
    }
    let again = Message::parse(&message.rest);
    assert_eq!((again.is_ready, again.rest), (message.is_ready, message.rest));
}
