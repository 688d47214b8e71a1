//! Thirteen kinds of work and six containers.

/// Seconds of a run.
pub(super) const SECONDS: f64 = 200.0;

#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// Its part of all requests.
    pub(super) share: f64,
    /// Seconds of processor time, of waiting for another service, and of a database's time.
    pub(super) run: f64,
    pub(super) away: f64,
    pub(super) database: f64,
    /// The relative deviation of the times.
    pub(super) deviation: f64,
    /// MiB that the request adds to its worker's memory.
    pub(super) peak: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) kinds: Vec<Kind>,
    /// MiB of an idle worker, and MiB that all workers share.
    pub(super) own: f64,
    pub(super) shared: f64,
    /// The relative deviation of the requests' memory.
    pub(super) peak_deviation: f64,
    /// MiB that a worker leaks in each request, and the number of requests until it is replaced (0: never).
    pub(super) leak: f64,
    pub(super) replaced_after: u32,
    /// The load at a second, as a part of the machine's capacity.
    pub(super) load: fn(f64) -> f64,
    /// Connections for each processor that the database serves at full speed.
    pub(super) connections: f64,
    /// The part of the processors that is there at a second.
    pub(super) processors: fn(f64) -> f64,
    /// How many times slower the database is by itself.
    pub(super) slower: fn(f64) -> f64,
    /// Processor time of a start.
    pub(super) start: f64,
    /// More processor time of a kind's first request after a deploy.
    pub(super) cold: f64,
    /// The second of a deploy (0: none).
    pub(super) deploy: f64,
    pub(super) threads: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Container {
    pub(super) cores: f64,
    /// MiB.
    pub(super) memory: f64,
}

pub(super) const CONTAINERS: [Container; 6] = [
    container(0.5, 256.0),
    container(1.0, 512.0),
    container(2.0, 2048.0),
    container(4.0, 2048.0),
    container(8.0, 16_384.0),
    container(32.0, 65_536.0),
];

const fn container(cores: f64, memory: f64) -> Container {
    Container { cores, memory }
}

const fn kind(share: f64, run: f64, away: f64, database: f64, deviation: f64, peak: f64) -> Kind {
    Kind {
        share,
        run,
        away,
        database,
        deviation,
        peak,
    }
}

/// A minute of overload between calm times.
fn wave(second: f64, top: f64) -> f64 {
    if (80.0..140.0).contains(&second) { top } else { 0.7 }
}

/// A workload without anything special.
pub(super) fn plain(name: &'static str, kinds: &[Kind]) -> Workload {
    Workload {
        name,
        kinds: kinds.to_vec(),
        own: 28.0,
        shared: 170.0,
        peak_deviation: 0.6,
        leak: 0.0,
        replaced_after: 0,
        load: |second| wave(second, 1.3),
        connections: 1e9,
        processors: |_| 1.0,
        slower: |_| 1.0,
        start: 0.01,
        cold: 0.0,
        deploy: 0.0,
        threads: 1,
    }
}

/// All workloads. `hot`: more load than the machine can serve from the first second on, so that calm teaches nothing.
pub(super) fn workloads(hot: bool) -> Vec<Workload> {
    let mixed = kind(1.0, 0.02, 0.06, 0.0, 0.7, 4.0);
    let query = kind(1.0, 0.008, 0.0, 0.04, 0.7, 4.0);
    let tail = [
        kind(0.9, 0.01, 0.03, 0.0, 1.0, 2.0),
        kind(0.09, 0.03, 0.5, 0.0, 1.5, 6.0),
        kind(0.01, 0.2, 4.0, 0.0, 1.0, 20.0),
    ];
    let skew = [
        kind(0.95, 0.004, 0.008, 0.0, 0.5, 1.0),
        kind(0.05, 0.4, 0.8, 0.0, 0.5, 30.0),
    ];
    let mut all = vec![
        plain("computing", &[kind(1.0, 0.04, 0.0, 0.0, 0.5, 4.0)]),
        plain("waiting", &[kind(1.0, 0.004, 0.2, 0.0, 0.5, 4.0)]),
        plain("mixed", &[mixed]),
        plain("heavy tail", &tail),
        Workload {
            leak: 0.06,
            replaced_after: 1000,
            ..plain("leaking", &[mixed])
        },
        Workload {
            connections: 2.0,
            ..plain("database", &[query])
        },
        Workload {
            processors: |second| if (second / 20.0) as u32 % 2 == 1 { 0.5 } else { 1.0 },
            ..plain("noisy neighbour", &[mixed])
        },
        Workload {
            load: |second| if second < 80.0 { 0.08 } else { 0.8 },
            ..plain("tenfold step", &[mixed])
        },
        Workload {
            load: |second| 0.1 + (std::f64::consts::PI * second / 120.0).sin().powi(2),
            ..plain("day and night", &[mixed])
        },
        Workload {
            cold: 0.15,
            deploy: 70.0,
            start: 0.15,
            load: |second| wave(second, 1.1),
            ..plain("cold deploy", &[Kind { share: 0.05, ..mixed }; 20])
        },
        plain("skewed", &skew),
        Workload {
            threads: 4,
            ..plain("threads, one lock", &[mixed])
        },
        Workload {
            slower: |second| if second > 70.0 { 2.5 } else { 1.0 },
            load: |second| if second > 80.0 { 0.9 } else { 0.6 },
            ..plain("database slow by itself", &[query])
        },
    ];
    if hot {
        all.iter_mut().for_each(|workload| workload.load = |_| 1.3);
    }
    all
}
