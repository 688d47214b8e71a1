//! Settings that come with a request.

use forkyard_config::RequestSettings;
use forkyard_runtimes::php::request_settings::{HARMLESS, Rule, Verdict};

pub(super) fn request_settings(input: &[u8]) {
    const MOST_LINES: usize = 40;
    let mut rule = Rule::new(RequestSettings::Harmless, vec!["open_basedir".to_owned()]);
    let mut closed = Rule::new(RequestSettings::None, Vec::new());
    let mut said = 0;
    for name in input.split(|byte| *byte == b'\n') {
        let name = String::from_utf8_lossy(name);
        match rule.judge(&name) {
            Verdict::Set => assert!(HARMLESS.contains(&&*name) && name != "open_basedir"),
            Verdict::Refuse(text) => {
                said += usize::from(!text.is_empty());
                assert!(text.len() < 1000, "{text}");
            }
        }
        assert!(matches!(closed.judge(&name), Verdict::Refuse(_)));
    }
    assert!(said <= MOST_LINES);
}
