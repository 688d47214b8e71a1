//! What a master says to its keeper: lines of sd_notify(3).

/// A message, as far as the keeper understands it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Message {
    /// `FDSTORE=1`: the descriptors that come with it are to be kept.
    pub keeps: bool,
    /// `FDSTOREREMOVE=1`: those of this name are not any more.
    pub forgets: bool,
    /// `FDNAME=`.
    pub name: Option<String>,
    /// `READY=1`.
    pub is_ready: bool,
    /// What is passed on to a service manager above: everything but descriptors, and whose process is the main one.
    pub rest: String,
}

/// Bytes of a name (sd_pid_notify_with_fds(3)).
const NAME_BYTES: usize = 255;

impl Message {
    /// Reads a message. What is not understood is passed on.
    pub fn parse(text: &str) -> Message {
        let mut message = Message::default();
        // A line ends at LF alone (sd_notify(3)): `lines` would take a CR before it away.
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
