//! What descriptors are called: in the document, and as FDNAME in a descriptor store (sd_pid_notify_with_fds(3)).
//! They are short because all of them go into one variable, for which the kernel has 128 KiB (execve(2)).

/// One of the two copies of the document.
pub const COPIES: [&str; 2] = ["handover-a", "handover-b"];
/// The configuration that was applied last.
pub const CONFIG: &str = "handover-config";
/// The TCP socket at which jobs are asked for. No pool has the number 0.
pub const JOBS: &str = "p0.j";

/// A pool's listening socket.
pub fn listener(pool: u32) -> String {
    format!("p{pool}.l")
}

/// The listening socket of a pool's status, if that has one of its own.
pub fn status(pool: u32) -> String {
    format!("p{pool}.s")
}

/// The socket at which a pool's workers speak HTTP, if there is one.
pub fn http(pool: u32) -> String {
    format!("p{pool}.h")
}

/// The two ends of a pool's hand-off queue, out first.
pub fn queue(pool: u32) -> [String; 2] {
    [format!("p{pool}.qo"), format!("p{pool}.qi")]
}

/// A generation's scoreboard.
pub fn board(generation: u32) -> String {
    format!("g{generation}.b")
}

/// The two ends of a generation's accept-notify pipe, out first.
pub fn accept_notify(generation: u32) -> [String; 2] {
    [format!("g{generation}.ao"), format!("g{generation}.ai")]
}

/// The two ends of a generation's messages, out first.
pub fn messages(generation: u32) -> [String; 2] {
    [format!("g{generation}.mo"), format!("g{generation}.mi")]
}

/// The two ends of the socket in which a generation's access log lies, in first.
pub fn access_log(generation: u32) -> [String; 2] {
    [format!("g{generation}.li"), format!("g{generation}.lo")]
}

/// The two ends of the socket over which a generation's workers tell of starts that failed, out first.
pub fn reports(generation: u32) -> [String; 2] {
    [format!("g{generation}.eo"), format!("g{generation}.ei")]
}

/// The table in which a generation's workers find the processes of its program.
pub fn program_table(generation: u32) -> String {
    format!("g{generation}.t")
}

/// The standard input of a process of a generation's program, by its place, and what it writes.
pub fn program(generation: u32, place: u32) -> [String; 2] {
    [
        format!("g{generation}.n{place}"),
        format!("g{generation}.u{place}"),
    ]
}

/// The end of a worker's stop pipe that is the master's.
pub fn stop_pipe(worker: u64) -> String {
    format!("w{worker}.r")
}

/// Where a worker's standard output and error come out.
pub fn output(worker: u64) -> [String; 2] {
    [format!("w{worker}.o"), format!("w{worker}.e")]
}

/// Everything that belongs to a generation that has its resources: the scoreboard, and what is there for its processes.
pub fn of_generation(generation: u32) -> Vec<String> {
    let mut names = vec![board(generation)];
    names.extend(of_processes(generation));
    names
}

/// What a generation without a process does without; the last two are there only if it has an access log.
pub fn of_processes(generation: u32) -> Vec<String> {
    let mut names = Vec::from(accept_notify(generation));
    names.extend(messages(generation));
    names.extend(access_log(generation));
    names
}

/// Everything that may belong to a worker.
pub fn of_worker(worker: u64, output: bool) -> Vec<String> {
    let mut names = vec![stop_pipe(worker)];
    if output {
        names.extend(self::output(worker));
    }
    names
}

/// The letter and the number that a name begins with; `None`: it is not one of ours.
pub fn number_in(name: &str) -> Option<(char, u64)> {
    let (head, _) = name.split_once('.')?;
    let letter = head.chars().next().filter(|letter| "pgw".contains(*letter))?;
    Some((letter, head[1..].parse().ok()?))
}

/// The highest numbers of pools, generations and workers, this name's included.
pub fn higher(highest: (u32, u32, u64), name: &str) -> (u32, u32, u64) {
    let (pool, generation, worker) = highest;
    let small = |number: u64| u32::try_from(number).unwrap_or(0);
    match number_in(name) {
        Some(('p', number)) => (pool.max(small(number)), generation, worker),
        Some(('g', number)) => (pool, generation.max(small(number)), worker),
        Some((_, number)) => (pool, generation, worker.max(number)),
        None => highest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back() {
        let mut names = vec![listener(3)];
        names.extend(queue(4));
        names.extend(of_generation(7));
        names.extend(of_worker(900, true));
        names.extend(["handover-a".into(), "x9.y".into(), "w.z".into()]);
        let highest = names
            .iter()
            .fold((0, 0, 0), |highest, name| higher(highest, name));
        assert_eq!(highest, (4, 7, 900));
    }
}
