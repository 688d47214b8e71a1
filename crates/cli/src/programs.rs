//! The table of program processes, started by the daemon or by its workers.

use super::control::printable;
use super::status::{mebibytes, or_none, seconds};
use forkyard_protocol::control::ProcessStatus;
use std::fmt::Write as _;

pub(super) fn table(processes: &[ProcessStatus], text: &mut String) {
    for process in processes {
        let _ = writeln!(
            text,
            "    {:>8}  program {}, {}, up {}, {} requests, {} sessions, restarts {}, memory {}, cpu {}",
            or_none(process.pid.map(|pid| pid.to_string())),
            process.place,
            printable(&process.state),
            seconds(process.uptime_ms),
            process.requests,
            process.sessions,
            process.restarts,
            mebibytes(process.memory),
            seconds(process.cpu_ms),
        );
    }
}

/// Adds how many processes have outlived the workers that started them.
pub(super) fn left(orphans: u32, text: &mut String) {
    if orphans > 0 {
        let _ = writeln!(text, "  left by workers that are gone: {orphans} processes");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::status::{Use, look_at};
    use super::*;
    use forkyard_protocol::control::{GenerationStatus, PoolStatus, Status};

    pub(crate) fn status() -> Status {
        let process = |place, pid| ProcessStatus {
            place,
            pid,
            state: if pid.is_some() { "up" } else { "waiting" }.to_owned(),
            uptime_ms: pid.map(|_| 1500),
            requests: 7,
            sessions: 1,
            restarts: 2,
            memory: None,
            cpu_ms: None,
        };
        let generation = GenerationStatus {
            id: 3,
            state: "serving".to_owned(),
            pm: "static".to_owned(),
            programs: vec![process(0, Some(77)), process(1, None)],
            ..GenerationStatus::default()
        };
        let pool = PoolStatus {
            name: "www".to_owned(),
            listen: "/run/s".to_owned(),
            orphans: 0,
            failed_starts: 4,
            generations: vec![generation],
            ..PoolStatus::default()
        };
        Status {
            pid: 1,
            version: "1".to_owned(),
            config: "f".to_owned(),
            pools: vec![pool],
            ..Status::default()
        }
    }

    #[test]
    fn processes_are_shown_with_what_the_system_says() {
        let mut status = status();
        look_at(&mut status, &|pid| Use {
            memory: (pid == 77).then_some(3 << 20),
            cpu_ms: Some(1250),
        });
        let mut text = String::new();
        table(&status.pools[0].generations[0].programs, &mut text);
        assert_eq!(
            text,
            "          77  program 0, up, up 1.5 s, 7 requests, 1 sessions, restarts 2, memory 3 MiB, cpu 1.2 s\n\
             \u{20}          -  program 1, waiting, up -, 7 requests, 1 sessions, restarts 2, memory -, cpu -\n"
        );
    }
}
