//! The commands, in the order of the help.

use super::{Code, Entry, File, Group};

const DONE: Code = (0, "It is done.");
const WRONG: Code = (2, "The command line is wrong.");
const SILENT: Code = (69, "No daemon answers at the control socket.");
const FAILED: Code = (70, "It failed; standard error has the reason.");
const UNNAMED: Code = (
    78,
    "No control socket is named, neither with --socket nor by the configuration.",
);
/// For commands that the daemon carries out.
pub(super) const ASKED: &[Code] = &[DONE, WRONG, SILENT, FAILED, UNNAMED];
/// For commands that add pools.
const ADDED: &[Code] = &[
    DONE,
    WRONG,
    SILENT,
    FAILED,
    (78, "The file with pools is wrong, or no control socket is named."),
];
/// For commands that need no daemon.
const ALONE: &[Code] = &[DONE, WRONG, FAILED];

pub(super) const CONFIG: File = (
    "/etc/forkyard/forkyard.toml",
    "The configuration, unless -c names another.",
);
const POOLS: File = ("/etc/forkyard/pools/*.toml", "A file for each pool.");
const SOCKET: File = (
    "/run/forkyard.sock",
    "The control socket of root's daemon, unless the configuration has another.",
);
const OWNERS: File = (
    "/run/forkyard.sock.owners",
    "The socket over which owners ask about their own applications.",
);
/// For commands that ask root's daemon.
pub(super) const ROOTS: &[File] = &[CONFIG, SOCKET];
/// For commands that owners of applications may also use.
pub(super) const ALL: &[File] = &[CONFIG, SOCKET, OWNERS];

pub(super) const FILES: &[File] = &[CONFIG, POOLS, SOCKET, OWNERS];
pub(super) const CODES: &[Code] = &[
    DONE,
    (1, "The condition does not hold: no such pool, or not healthy."),
    WRONG,
    SILENT,
    FAILED,
    (
        78,
        "The configuration is wrong or can't be applied, or no control socket is named.",
    ),
];
pub(super) const WHOLE: &[(&str, &str)] = &[
    (
        "forkyard init php",
        "Writes a pool and a site of nginx for the PHP application in this directory.",
    ),
    ("forkyard check", "Names every mistake in the configuration."),
    ("forkyard status", "Shows the pools of the running daemon."),
    ("forkyard reload", "Puts a changed configuration into force."),
];

pub(super) const FPM: &[(&str, &str)] = &[
    ("forkyard-fpm -t", "Tests the configuration."),
    (
        "forkyard-fpm -F -y /etc/php/8.4/fpm/php-fpm.conf",
        "Serves Debian's pools in the foreground.",
    ),
];
pub(super) const FPM_CODES: &[Code] = &[
    (0, "It has ended as asked, or the configuration is right."),
    (64, "An option is wrong."),
    (70, "Going to the background failed."),
    (78, "The configuration is wrong or can't be applied."),
];
pub(super) const FPM_FILES: &[File] = &[(
    "/etc/php/VERSION/fpm/php-fpm.conf",
    "The configuration, of the newest version of PHP that is there, unless -y names another.",
)];

pub(super) const CONFIGURATION: &[(&str, &str)] = &[
    (
        "forkyard check",
        "Names every mistake in the file, and what would be right.",
    ),
    (
        "forkyard check --effective",
        "Shows the settings in force, and where each was set.",
    ),
];
pub(super) const CONFIGURATION_CODES: &[Code] = &[
    (0, "forkyard check: the file is right."),
    (
        78,
        "forkyard check, run and reload: the file is wrong, or can't be applied.",
    ),
];

pub(super) const COMMANDS: &[Entry] = &[
    Entry {
        name: "init",
        group: Group::Begin,
        examples: &[
            (
                "forkyard init php",
                "Writes a pool and a site of nginx for the PHP application in this directory.",
            ),
            (
                "forkyard init ruby --root /srv/shop --user deploy --server-name shop.example.org",
                "Does so for a Rack application elsewhere, which runs as deploy, under its own name.",
            ),
        ],
        codes: ALONE,
        files: &[
            POOLS,
            ("/etc/nginx/sites-enabled/", "The directory of nginx's sites."),
        ],
    },
    Entry {
        name: "check",
        group: Group::Begin,
        examples: &[
            (
                "forkyard check",
                "Names every mistake in the configuration, with its place and what would be right.",
            ),
            (
                "forkyard check --effective",
                "Shows the values in force, and where each was set.",
            ),
            (
                "forkyard check --strict -c /srv/new/forkyard.toml",
                "Takes warnings for errors, as a deployment does.",
            ),
        ],
        codes: &[
            (0, "There is no error."),
            (1, "--has-pools: there is no pool."),
            WRONG,
            (78, "There is an error, or a warning with --strict."),
        ],
        files: &[CONFIG, POOLS],
    },
    Entry {
        name: "run",
        group: Group::Begin,
        examples: &[
            (
                "forkyard run",
                "Serves the pools, in the foreground unless daemonize is set.",
            ),
            (
                "forkyard run --keeper -c /srv/forkyard.toml",
                "Does so by another file, below a keeper.",
            ),
        ],
        codes: &[
            (0, "It has ended as asked."),
            WRONG,
            (70, "Going to the background failed."),
            (
                78,
                "The configuration is wrong or can't be applied, or no worker could be made.",
            ),
        ],
        files: FILES,
    },
    Entry {
        name: "dev",
        group: Group::Begin,
        examples: &[
            (
                "forkyard dev",
                "Serves the application in this directory at http://127.0.0.1:8000/.",
            ),
            (
                "forkyard dev /srv/shop --port 9000",
                "Serves another one at another port.",
            ),
        ],
        codes: &[(0, "It was ended."), (64, "The command line is wrong."), FAILED],
        files: &[("forkyard.toml", "The application's own file, in its directory.")],
    },
    Entry {
        name: "import",
        group: Group::Begin,
        examples: &[(
            "forkyard import /etc/php/8.4/fpm/php-fpm.conf -o /etc/forkyard/forkyard.toml",
            "Writes the pools of php-fpm as forkyard's own.",
        )],
        codes: &[
            (0, "All was turned into forkyard's own."),
            (1, "Something could not be; the messages say what."),
            WRONG,
            FAILED,
            (78, "php-fpm's configuration is wrong."),
        ],
        files: &[
            ("/etc/php/VERSION/fpm/php-fpm.conf", "php-fpm's configuration."),
            CONFIG,
        ],
    },
    Entry {
        name: "php",
        group: Group::Begin,
        examples: &[("forkyard php", "Lists the versions, and the library of each.")],
        codes: &[
            (0, "There is one at least."),
            WRONG,
            (70, "No version of PHP can be run."),
        ],
        files: &[("/usr/lib/*/libphp*.so", "PHP's libraries.")],
    },
    Entry {
        name: "status",
        group: Group::See,
        examples: &[
            ("forkyard status", "Shows a line for each pool."),
            (
                "forkyard status www",
                "Shows everything of one pool: workers, requests, counters, errors.",
            ),
            (
                "forkyard status --watch --sort cpu",
                "Shows all pools every second, the busiest first.",
            ),
            (
                "forkyard status --metrics",
                "Prints numbers for a monitoring system.",
            ),
        ],
        codes: ASKED,
        files: ALL,
    },
    Entry {
        name: "top",
        group: Group::See,
        examples: &[
            (
                "forkyard top --interval 5s",
                "Shows pools and requests, every five seconds.",
            ),
            (
                "forkyard top --once --view failures",
                "Prints what was slow or failed.",
            ),
            (
                "forkyard top --json --interval 10s",
                "Prints all numbers every ten seconds, for a program.",
            ),
        ],
        codes: ASKED,
        files: ALL,
    },
    Entry {
        name: "health",
        group: Group::See,
        examples: &[
            (
                "forkyard health",
                "Tells whether the daemon answers: for liveness probes.",
            ),
            (
                "forkyard health --ready --pool www",
                "Tells whether a pool serves: for readiness probes.",
            ),
            (
                "forkyard health --web-server",
                "Tells whether nginx can connect to the sockets, by trying it.",
            ),
        ],
        codes: &[
            (0, "All is well."),
            (1, "A condition does not hold; standard error names it."),
            WRONG,
            SILENT,
            (70, "There is no such pool."),
            UNNAMED,
        ],
        files: ALL,
    },
    Entry {
        name: "ping",
        group: Group::See,
        examples: &[(
            "forkyard ping",
            "Prints the version and the process id of the daemon.",
        )],
        codes: ASKED,
        files: ALL,
    },
    Entry {
        name: "error",
        group: Group::See,
        examples: &[
            ("forkyard error", "Shows the last error."),
            (
                "forkyard error 5b0f9e21 --json",
                "Shows that with the id in the log, for a program.",
            ),
        ],
        codes: &[
            DONE,
            WRONG,
            SILENT,
            (70, "There is no such report, or no longer."),
            UNNAMED,
        ],
        files: ALL,
    },
    Entry {
        name: "crashes",
        group: Group::See,
        examples: &[
            (
                "forkyard crashes",
                "Lists the workers that died at work, the latest first.",
            ),
            ("forkyard crashes www --json", "Those of a pool, for a program."),
        ],
        codes: &[DONE, WRONG, SILENT, (70, "There is no such pool."), UNNAMED],
        files: ALL,
    },
    Entry {
        name: "replay",
        group: Group::See,
        examples: &[(
            "forkyard replay 5b0f9e21 --to www",
            "Sends the request of that report to the pool, and prints the status of its answer.",
        )],
        codes: ASKED,
        files: ALL,
    },
    Entry {
        name: "events",
        group: Group::See,
        examples: &[
            ("forkyard events", "Shows the last events of all pools."),
            (
                "forkyard events www --since 1h",
                "Shows what happened to a pool within the last hour.",
            ),
        ],
        codes: ASKED,
        files: ALL,
    },
    Entry {
        name: "opcache",
        group: Group::See,
        examples: &[
            ("forkyard opcache", "Shows OPcache and APCu of all pools of PHP."),
            ("forkyard opcache --json", "Shows the same for a program."),
        ],
        codes: ASKED,
        files: ALL,
    },
    Entry {
        name: "logs",
        group: Group::See,
        examples: &[
            (
                "forkyard logs www",
                "Shows where the logs of a pool are, and how large.",
            ),
            ("forkyard logs -f", "Follows the logs of all pools."),
        ],
        codes: &[
            DONE,
            WRONG,
            SILENT,
            (70, "There is no such pool, or no file to follow."),
            UNNAMED,
        ],
        files: ROOTS,
    },
    Entry {
        name: "version",
        group: Group::See,
        examples: &[(
            "forkyard version",
            "Names the program that runs, and the one on disk.",
        )],
        codes: &[
            (0, "The program on disk is the one that runs."),
            (1, "Another is on disk: forkyard upgrade lets it take over."),
            WRONG,
            SILENT,
            FAILED,
            UNNAMED,
        ],
        files: ROOTS,
    },
    Entry {
        name: "reload",
        group: Group::Change,
        examples: &[
            (
                "forkyard reload",
                "Applies a changed configuration, and reports the result for each pool.",
            ),
            ("forkyard reload --all", "Gives every pool new processes."),
            (
                "forkyard reload --dry-run",
                "Shows what a reload would change, by pool and key.",
            ),
        ],
        codes: &[
            DONE,
            (1, "--dry-run: the file differs from the running configuration."),
            WRONG,
            SILENT,
            (
                70,
                "A pool's new workers did not come up, and the old ones serve.",
            ),
            (
                78,
                "The configuration is wrong, and the old one stays in force; or no control socket is named.",
            ),
        ],
        files: ROOTS,
    },
    Entry {
        name: "restart",
        group: Group::Change,
        examples: &[
            (
                "forkyard restart shop --wait",
                "Gives a pool new processes, and waits until they serve.",
            ),
            (
                "forkyard restart /srv/shop --rolling",
                "Gives an application new instances, one after the other.",
            ),
        ],
        codes: &[
            DONE,
            WRONG,
            SILENT,
            (70, "No new process came up, or the daemon refuses it."),
            UNNAMED,
        ],
        files: ALL,
    },
    Entry {
        name: "terminate",
        group: Group::Change,
        examples: &[(
            "forkyard terminate 4711",
            "Ends the request that worker 4711 is busy with.",
        )],
        codes: &[
            DONE,
            WRONG,
            SILENT,
            (70, "It is no worker, or has no request."),
            UNNAMED,
        ],
        files: ALL,
    },
    Entry {
        name: "upgrade",
        group: Group::Change,
        examples: &[(
            "forkyard upgrade",
            "Lets the program that is installed now take over.",
        )],
        codes: &[
            DONE,
            WRONG,
            SILENT,
            (70, "The new program can't take over, and the old one goes on."),
            UNNAMED,
        ],
        files: ROOTS,
    },
    Entry {
        name: "pool",
        group: Group::Change,
        examples: &[
            (
                "forkyard pool add /srv/shop/pool.toml",
                "Begins the pools of a file.",
            ),
            (
                "forkyard pool remove shop",
                "Closes a pool, and lets its requests finish.",
            ),
        ],
        codes: ADDED,
        files: ROOTS,
    },
    Entry {
        name: "pool add",
        group: Group::Within,
        examples: &[(
            "forkyard pool add /srv/shop/pool.toml",
            "Begins the pools of a file.",
        )],
        codes: ADDED,
        files: ROOTS,
    },
    Entry {
        name: "pool remove",
        group: Group::Within,
        examples: &[(
            "forkyard pool remove shop --deadline 10s",
            "Closes a pool, and ends after 10 s what still runs.",
        )],
        codes: ASKED,
        files: ROOTS,
    },
    Entry {
        name: "drain",
        group: Group::Change,
        examples: &[
            (
                "forkyard drain --for 8s",
                "Has load balancers send no more, and returns after 8 s.",
            ),
            ("forkyard drain --end", "Takes that back."),
        ],
        codes: ASKED,
        files: ROOTS,
    },
    Entry {
        name: "reopen-logs",
        group: Group::Change,
        examples: &[(
            "forkyard reopen-logs",
            "Opens the logs after logrotate has moved them away.",
        )],
        codes: ASKED,
        files: &[
            CONFIG,
            SOCKET,
            ("/etc/logrotate.d/forkyard", "The path in the packages."),
        ],
    },
    Entry {
        name: "spawn",
        group: Group::Tools,
        examples: &[(
            "forkyard spawn --app-root /srv/shop --start-command 'node app.js'",
            "Starts a program that listens on $PORT, and shows how long each step took.",
        )],
        codes: &[
            (0, "It came up, and was stopped."),
            WRONG,
            (64, "The options do not fit together."),
            (70, "It did not start; standard output has the reason."),
        ],
        files: &[("/srv/shop/tmp/", "An example with the application's own files.")],
    },
    Entry {
        name: "completions",
        group: Group::Tools,
        examples: &[(
            "forkyard completions bash > /etc/bash_completion.d/forkyard",
            "Has bash complete commands, options, and the names of pools and applications.",
        )],
        codes: ALONE,
        files: &[(
            "/usr/share/bash-completion/completions/forkyard",
            "The path in the packages.",
        )],
    },
    Entry {
        name: "schema",
        group: Group::Tools,
        examples: &[(
            "forkyard schema > /srv/forkyard.schema.json",
            "Writes the schema into a file.",
        )],
        codes: ALONE,
        files: &[("/usr/share/forkyard/schema.json", "The path in the packages.")],
    },
];
