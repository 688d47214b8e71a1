//! Messages from a master to its keeper, in sd_notify(3) format.

/// The parts of a message that the keeper handles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// `FDSTORE=1`: stores the attached descriptors.
    pub keeps: bool,
    /// `FDSTOREREMOVE=1`: drops the descriptors with this name.
    pub forgets: bool,
    /// `FDNAME=`.
    pub name: Option<String>,
    /// `READY=1`.
    pub is_ready: bool,
    /// Lines to forward to the service manager. The keeper handles descriptors and `MAINPID` itself.
    pub rest: String,
}

/// The longest name in bytes (sd_pid_notify_with_fds(3)).
const NAME_BYTES: usize = 255;

impl Message {
    /// Parses a message. Unknown lines are forwarded.
    pub fn parse(text: &str) -> Message {
        let mut message = Message::default();
        // Only LF ends a line (sd_notify(3)); `lines` would strip a CR.
        for line in text.split('\n') {
            match line.split_once('=') {
                Some(("FDSTORE", "1")) => message.keeps = true,
                Some(("FDSTOREREMOVE", "1")) => message.forgets = true,
                Some(("FDNAME", name)) if is_name(name) => message.name = Some(name.to_owned()),
                Some(("FDNAME" | "FDPOLL" | "FDSTORE" | "FDSTOREREMOVE" | "MAINPID", _)) | None => {}
                Some((key, value)) => {
                    message.is_ready |= (key, value) == ("READY", "1");
                    message.rest.push_str(line);
                    message.rest.push('\n');
                }
            }
        }
        message
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES).contains(&name.len()) && !name.contains(|c: char| c == ':' || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_kept_and_the_rest_is_passed_on() {
        let kept = Message::parse("FDSTORE=1\nFDNAME=p1.l\n");
        assert!(kept.keeps && !kept.forgets && kept.rest.is_empty());
        assert_eq!(kept.name.as_deref(), Some("p1.l"));
        let ready = Message::parse("READY=1\nSTATUS=up\nMAINPID=5\n");
        assert!(ready.is_ready);
        assert_eq!(ready.rest, "READY=1\nSTATUS=up\n");
    }

    #[test]
    fn a_carriage_return_belongs_to_the_value() {
        let message = Message::parse("STATUS=one\r\nREADY=1\r\n");
        assert_eq!(message.rest, "STATUS=one\r\nREADY=1\r\n");
        assert!(!message.is_ready);
    }

    #[test]
    fn a_name_that_could_not_be_passed_is_none() {
        for text in [
            "FDNAME=a:b",
            "FDNAME=",
            "FDNAME=a\u{7}b",
            &format!("FDNAME={}", "x".repeat(256)),
        ] {
            assert_eq!(Message::parse(text).name, None, "{text}");
        }
    }
}
