//! Runs the daemon as a child: start, log, restarts and exit.

use crate::DevFailure;
use crate::configuration::Paths;
use forkyard_protocol::control::{Answer, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

const READY: &str = "ready to handle connections";
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const LAST_LINES: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
struct Line {
    level: String,
    message: String,
    #[serde(default)]
    stream: Option<String>,
}

pub(crate) fn programs() -> Result<PathBuf, DevFailure> {
    let own = std::env::current_exe().ok();
    let directory = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    directory.ok_or_else(|| DevFailure::Failed("can't find the directory of forkyard's programs".to_owned()))
}

pub(crate) async fn newest_php(programs: &Path) -> Result<String, DevFailure> {
    let program = programs.join("forkyard-php");
    let output = Command::new(&program).arg("--versions").output().await;
    let output =
        output.map_err(|error| DevFailure::Failed(format!("can't run {}: {error}", program.display())))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let versions: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let number =
        |version: &str| -> Vec<u32> { version.split('.').filter_map(|part| part.parse().ok()).collect() };
    let installed = versions.iter().filter(|(_, library)| *library != "-");
    if let Some((version, _)) = installed.max_by_key(|(version, _)| number(version)) {
        return Ok((*version).to_owned());
    }
    let packages: Vec<String> = versions
        .iter()
        .map(|(version, _)| format!("libphp{version}-embed"))
        .collect();
    Err(DevFailure::Refused(format!(
        "this is an application in PHP, and PHP is not installed as a library: apt install {}",
        packages.join(" or ")
    )))
}

pub(crate) struct Daemon {
    child: Child,
    log: tokio::task::JoinHandle<()>,
}

impl Daemon {
    pub(crate) async fn start(programs: &Path, paths: &Paths) -> Result<Daemon, DevFailure> {
        let program = programs.join("forkyard");
        let mut child = Command::new(&program)
            .args(["run", "--nodaemonize", "--with-parent", "--config"])
            .arg(&paths.configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C must reach only this process, which then stops the daemon.
            .process_group(0)
            .spawn()
            .map_err(|error| DevFailure::Failed(format!("can't run {}: {error}", program.display())))?;
        let stderr = child.stderr.take();
        let (sender, ready) = oneshot::channel();
        let log = tokio::spawn(async move {
            if let Some(stderr) = stderr {
                follow(stderr, sender).await;
            }
        });
        if ready.await.is_ok() {
            return Ok(Daemon { child, log });
        }
        let status = child.wait().await;
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        Err(DevFailure::Failed(format!(
            "the daemon did not start ({how}); its reason is above"
        )))
    }

    pub(crate) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    pub(crate) async fn stop(mut self) {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            eprintln!("forkyard: the daemon does not end, and is killed");
            let _ = self.child.kill().await;
        }
        let _ = timeout(LAST_LINES, self.log).await;
    }
}

async fn follow(stderr: ChildStderr, ready: oneshot::Sender<()>) {
    let mut ready = Some(ready);
    let mut lines = BufReader::new(stderr).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let text = String::from_utf8_lossy(&line);
        match serde_json::from_str::<Line>(&text) {
            Ok(line) if line.message == READY => {
                ready.take().map(|ready| ready.send(()));
            }
            Ok(line) => {
                if let Some(shown) = shown(&line) {
                    eprintln!("{shown}");
                }
            }
            Err(_) => eprintln!("{text}"),
        }
    }
}

fn shown(line: &Line) -> Option<String> {
    if line.stream.is_some() {
        return Some(line.message.clone());
    }
    let is_told = ["warning", "error", "alert"].contains(&line.level.as_str());
    is_told.then(|| {
        let message = line.message.strip_prefix("[pool dev] ").unwrap_or(&line.message);
        format!("forkyard: {message}")
    })
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum RestartError {
    #[error("the daemon does not answer: {0}")]
    Silent(#[from] std::io::Error),
    #[error("the daemon answers something else: {0:?}")]
    Odd(Answer),
}

pub(crate) async fn restart(control: &Path, root: &Path) -> Result<(), RestartError> {
    let request = Request::Restart {
        application: root.to_owned(),
        rolling: Some(false),
        start: false,
    };
    match ask(control, &request).await? {
        Answer::Done { .. } | Answer::Error { .. } => Ok(()),
        other => Err(RestartError::Odd(other)),
    }
}

async fn ask(control: &Path, request: &Request) -> std::io::Result<Answer> {
    let mut stream = BufReader::new(UnixStream::connect(control).await?);
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    stream.read_line(&mut answer).await?;
    Ok(serde_json::from_str(&answer)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_developer_sees_what_the_application_writes_and_what_is_wrong() {
        let line = |text: &str| shown(&serde_json::from_str(text).unwrap());
        let said =
            r#"{"level":"warning","message":"a\n  b","pool":"dev","stream":"stderr","pid":1,"time":"x"}"#;
        assert_eq!(line(said).as_deref(), Some("a\n  b"));
        let own = r#"{"level":"error","message":"[pool dev] broken","pid":1,"time":"x"}"#;
        assert_eq!(line(own).as_deref(), Some("forkyard: broken"));
        assert_eq!(line(r#"{"level":"notice","message":"up"}"#), None);
    }
}
