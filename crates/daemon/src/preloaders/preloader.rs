//! The channel to a preloader: JSON lines with descriptors out, untrusted JSON lines back.

use crate::context::lines::Lines;
use crate::context::make::Facts;
use crate::context::worker::{Traceable, signal_of};
use forkyard_core::master::action::Force;
use forkyard_core::zygotes::Members;
use forkyard_runtimes::php::files::Fingerprint;
use forkyard_runtimes::php::protocol::{self, Answer};
use forkyard_spawn::event::Token;
use forkyard_sys::fd::{null, receive_with, send_with};
use forkyard_sys::guarded::Guarded;
use forkyard_sys::shared_mappings::Template;
use forkyard_sys::socket::Progress;
use forkyard_sys::{Error, process};
use forkyard_worker::Settings;
use nix::errno::Errno;
use nix::sys::socket::{Shutdown, shutdown};
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

const ANSWER_BYTES: usize = 64 * 1024;
const LOOKS: usize = 16;
/// The number of lines of output that are kept for the log.
const LAST_LINES: usize = 4;

pub(crate) type Command = protocol::Command<Settings>;

#[derive(Debug)]
pub(crate) struct Preloader {
    pub(crate) pid: i32,
    /// Its start in the spawning kit; `None` once it is up, or if the kit did not start it.
    pub(crate) start: Option<Token>,
    pub(crate) channel: Guarded,
    /// Its standard output and error, once it is up.
    pub(crate) output: Option<Lines>,
    pub(crate) members: Members<Settings>,
    /// The files that a zygote was started from.
    pub(crate) origin: Option<Fingerprint>,
    pub(crate) facts: Option<Facts>,
    pub(crate) is_given_up: bool,
    /// A zygote's memory, which each pool gets as its own.
    pub(crate) template: Option<Template>,
    unsent: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
    partial: Vec<u8>,
    pub(crate) last_lines: VecDeque<String>,
    /// Device and inode of its executable, which its workers also run.
    pub(crate) executable: Option<(u64, u64)>,
    /// How to trace its workers, once it has sent that.
    pub(crate) traceable: Option<Rc<Traceable>>,
}

#[derive(Debug)]
pub(crate) enum ChannelInput {
    /// Answers in the preloader's order.
    Answers(Vec<Answer>),
    Nonsense(String),
    Closed,
}

impl Preloader {
    pub(crate) fn new(pid: i32, channel: Guarded, start: Option<Token>) -> Preloader {
        Preloader {
            pid,
            start,
            channel,
            output: None,
            members: Members::of_one(),
            origin: None,
            facts: None,
            is_given_up: false,
            template: None,
            unsent: VecDeque::new(),
            partial: Vec::new(),
            last_lines: VecDeque::new(),
            executable: None,
            traceable: None,
        }
    }

    /// Sends a command with descriptors, now or when there is room; it keeps the descriptors until then.
    pub(crate) fn send(&mut self, command: &Command, descriptors: Vec<OwnedFd>) {
        // Serialising plain values can't fail.
        let mut line = serde_json::to_vec(command).unwrap_or_default();
        line.push(b'\n');
        self.unsent.push_back((line, descriptors));
        self.push();
    }

    /// Whether commands wait for room in the channel.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends a command without its own descriptors; every line has one, which keeps lines and descriptors together.
    pub(crate) fn send_plain(&mut self, command: &Command) {
        match null() {
            Ok(null) => self.send(command, vec![null]),
            Err(error) => log::error!("{error}"),
        }
    }

    pub(crate) fn push(&mut self) {
        while let Some((line, descriptors)) = self.unsent.front_mut() {
            let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
            match send_with(self.channel.as_fd(), line, &raw) {
                Ok(sent) if sent >= line.len() => {
                    self.unsent.pop_front();
                }
                Ok(sent) => {
                    // The descriptors went with the first bytes.
                    line.drain(..sent);
                    descriptors.clear();
                }
                // Full or closed; a read reports the latter.
                Err(_) => return,
            }
        }
    }

    pub(crate) fn note_output(&mut self, output: &[u8]) {
        let lines = output.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            if self.last_lines.len() >= LAST_LINES {
                self.last_lines.pop_front();
            }
            let line = String::from_utf8_lossy(line).into_owned();
            self.last_lines.push_back(line);
        }
    }

    pub(crate) fn is_zygote(&self) -> bool {
        self.members.is_zygote()
    }

    /// Ends its input, so that it exits. The channel stays open until the process is reaped: answers may still come.
    pub(crate) fn close(&self) {
        let _ = shutdown(self.channel.as_raw_fd(), Shutdown::Write);
    }

    /// Asks it to exit, or ends it by a signal.
    pub(crate) fn stop(&self, force: Force) {
        let Some(signal) = signal_of(force) else {
            return self.close();
        };
        if let Err(error) = process::send_signal(self.pid, signal) {
            log::error!("{error}");
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.facts.is_some()
    }

    pub(crate) fn hear(&mut self) -> ChannelInput {
        let mut answers = Vec::new();
        if self.is_given_up {
            return ChannelInput::Closed;
        }
        let mut buffer = [0; 4096];
        for _ in 0..LOOKS {
            let received = match self.is_about_to_send_template() {
                true => self.receive_template(&mut buffer),
                false => self.channel.receive(&mut buffer),
            };
            let count = match received {
                Ok(Progress::Done(count)) if count > 0 => count,
                Ok(Progress::WouldBlock) => break,
                Err(error) if error.errno == Errno::EBADMSG => {
                    return ChannelInput::Nonsense("descriptors that nobody wants".to_owned());
                }
                Ok(_) | Err(_) if answers.is_empty() => return ChannelInput::Closed,
                Ok(_) | Err(_) => break,
            };
            for &byte in &buffer[..count] {
                if byte != b'\n' {
                    self.partial.push(byte);
                    if self.partial.len() > ANSWER_BYTES {
                        return ChannelInput::Nonsense(format!(
                            "an answer of more than {ANSWER_BYTES} bytes"
                        ));
                    }
                    continue;
                }
                let line = std::mem::take(&mut self.partial);
                match serde_json::from_slice(&line) {
                    Ok(answer) => answers.push(answer),
                    Err(error) => {
                        let text: String = String::from_utf8_lossy(&line).chars().take(80).collect();
                        return ChannelInput::Nonsense(format!("the answer {text:?}: {error}"));
                    }
                }
            }
        }
        ChannelInput::Answers(answers)
    }

    /// Only a zygote may send a descriptor: no script of a pool ever runs in it.
    fn is_about_to_send_template(&self) -> bool {
        self.is_zygote() && self.facts.is_none() && self.template.is_none()
    }

    fn receive_template(&mut self, buffer: &mut [u8]) -> Result<Progress, Error> {
        let mut received = match receive_with(self.channel.as_fd(), buffer, false) {
            Err(error) if error.errno == Errno::EAGAIN => return Ok(Progress::WouldBlock),
            received => received?,
        };
        let template = received.descriptors.pop();
        let template = template.map(|file| Template::read(file, "template"));
        self.template = match template.transpose() {
            Ok(template) => template,
            // Without it no worker starts, and each reports why.
            Err(error) => {
                log::error!("{error}");
                None
            }
        };
        Ok(Progress::Done(received.bytes))
    }
}
