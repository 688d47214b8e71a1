//! Names of descriptors in the document and in a descriptor store (FDNAME, sd_pid_notify_with_fds(3)). They are short
//! because all names go into one variable, which the kernel limits to 128 KiB (execve(2)).

/// The document's two copies.
pub const COPIES: [&str; 2] = ["handover-a", "handover-b"];
/// The last applied configuration.
pub const CONFIG: &str = "handover-config";
/// The TCP socket of the job process. No pool has the number 0.
pub const JOBS: &str = "p0.j";
/// The socket of the web process.
pub const WEB: &str = "p0.w";
/// The memory with the last two weeks of all pools.
pub const ARCHIVE: &str = "p0.m";

pub fn listener(pool: u32) -> String {
    format!("p{pool}.l")
}

pub fn status(pool: u32) -> String {
    format!("p{pool}.s")
}

pub fn http(pool: u32) -> String {
    format!("p{pool}.h")
}

/// The kinds of a pool's queues: socket pairs over which its workers pass each other connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueKind {
    /// For kept connections with a request, and for wake-ups: one pair, with a read end and a write end.
    HandOff,
    /// For requests parked in lanes: two pairs, each carrying two lanes, one in each direction.
    Lanes,
    /// For requests of the other of two generations that share the pool: a pair for each, with a read end and a write end.
    Turns,
}

impl QueueKind {
    pub const ALL: [QueueKind; 3] = [QueueKind::HandOff, QueueKind::Lanes, QueueKind::Turns];

    /// Returns the names of the ends, two for each pair.
    pub fn names(self, pool: u32) -> impl Iterator<Item = String> {
        let ends: &[&str] = match self {
            QueueKind::HandOff => &["qo", "qi"],
            QueueKind::Lanes => &["qh0", "qh1", "ql0", "ql1"],
            QueueKind::Turns => &["t0", "t1", "t2", "t3"],
        };
        ends.iter().map(move |end| format!("p{pool}.{end}"))
    }
}

pub fn board(generation: u32) -> String {
    format!("g{generation}.b")
}

/// A generation's accept-notify pipe: read end, write end.
pub fn accept_notify(generation: u32) -> [String; 2] {
    [format!("g{generation}.ao"), format!("g{generation}.ai")]
}

/// A generation's message socket: read end, write end.
pub fn messages(generation: u32) -> [String; 2] {
    [format!("g{generation}.mo"), format!("g{generation}.mi")]
}

/// A generation's access log socket: write end, read end.
pub fn access_log(generation: u32) -> [String; 2] {
    [format!("g{generation}.li"), format!("g{generation}.lo")]
}

/// A generation's socket for failed starts: read end, write end.
pub fn reports(generation: u32) -> [String; 2] {
    [format!("g{generation}.eo"), format!("g{generation}.ei")]
}

/// The table of a generation's program processes, for its workers.
pub fn program_table(generation: u32) -> String {
    format!("g{generation}.t")
}

/// Standard input and output of a program's process, by place.
pub fn program(generation: u32, place: u32) -> [String; 2] {
    [
        format!("g{generation}.n{place}"),
        format!("g{generation}.u{place}"),
    ]
}

/// The master's end of a worker's stop pipe.
pub fn stop_pipe(worker: u64) -> String {
    format!("w{worker}.r")
}

/// The read ends of a worker's standard output and error.
pub fn output(worker: u64) -> [String; 2] {
    [format!("w{worker}.o"), format!("w{worker}.e")]
}

/// Every descriptor of a generation with processes.
pub fn of_generation(generation: u32) -> Vec<String> {
    let mut names = vec![board(generation)];
    names.extend(of_processes(generation));
    names
}

/// Descriptors that a generation without a process lacks. The last two exist only with an access log.
pub fn of_processes(generation: u32) -> Vec<String> {
    let mut names = Vec::from(accept_notify(generation));
    names.extend(messages(generation));
    names.extend(access_log(generation));
    names
}

pub fn of_worker(worker: u64, output: bool) -> Vec<String> {
    let mut names = vec![stop_pipe(worker)];
    if output {
        names.extend(self::output(worker));
    }
    names
}

/// The letter and number at a name's start. Returns `None` for foreign names.
pub fn number_in(name: &str) -> Option<(char, u64)> {
    let (head, _) = name.split_once('.')?;
    let letter = head.chars().next().filter(|letter| "pgw".contains(*letter))?;
    Some((letter, head[1..].parse().ok()?))
}

/// Raises the highest pool, generation and worker numbers to those in a name.
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
        names.extend(QueueKind::Lanes.names(4));
        names.extend(of_generation(7));
        names.extend(of_worker(900, true));
        names.extend(["handover-a".into(), "x9.y".into(), "w.z".into()]);
        let highest = names
            .iter()
            .fold((0, 0, 0), |highest, name| higher(highest, name));
        assert_eq!(highest, (4, 7, 900));
    }
}
