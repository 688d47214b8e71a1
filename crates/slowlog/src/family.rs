//! Reads from /proc which programs a worker has started. Programs choose their own names, so none of it is trusted.

use super::job::TracedProgram;
use super::memory::TEXT_BYTES;

pub(super) const MOST_PROGRAMS: usize = 32;
pub(super) const COMMAND_BYTES: usize = 4096;

pub(super) fn program(pid: i32, stat: &[u8], waits_in: &[u8], command: &[u8]) -> Option<TracedProgram> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let state = char::from(*stat.get(end + 2)?);
    let begin = stat.iter().position(|byte| *byte == b'(')?;
    let mut command: Vec<Vec<u8>> = command
        .strip_suffix(b"\0")
        .unwrap_or(command)
        .split(|byte| *byte == 0)
        .map(<[u8]>::to_vec)
        .collect();
    if command.iter().all(Vec::is_empty) {
        command = vec![stat.get(begin..=end)?.to_vec()];
    }
    let waits_in = match waits_in {
        b"0" => &[],
        name => &name[..name.len().min(TEXT_BYTES)],
    };
    Some(TracedProgram {
        pid,
        state,
        waits_in: waits_in.to_vec(),
        command,
    })
}

pub(super) fn pids(text: &str) -> Vec<i32> {
    let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.filter(|pid| *pid > 0).take(MOST_PROGRAMS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_shown_with_its_arguments() {
        let found = program(
            7,
            b"7 (a) R (b) S 1 7 7",
            b"hrtimer_nanosleep",
            b"/bin/sleep\x0060\0",
        )
        .unwrap();
        assert_eq!((found.pid, found.state), (7, 'S'));
        assert_eq!(found.command, [b"/bin/sleep".to_vec(), b"60".to_vec()]);
        assert_eq!(found.waits_in, b"hrtimer_nanosleep");
    }

    #[test]
    fn one_without_arguments_has_its_name() {
        let found = program(7, b"7 (x y) Z 1", b"0", b"").unwrap();
        assert_eq!(found.command, [b"(x y)".to_vec()]);
        assert!(found.waits_in.is_empty());
    }

    #[test]
    fn nonsense_is_no_program() {
        for stat in [&b""[..], b"7 (x", b"7 )", b"7 x) S"] {
            assert_eq!(program(7, stat, b"", b""), None, "{stat:?}");
        }
        assert_eq!(pids("1 x -2 3\n"), [1, 3]);
    }
}
