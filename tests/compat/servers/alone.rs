//! forkyard-php without its master: the test plays the master.

use super::{Setup, directory, is_root, wait_for};
use crate::support::prelude::*;
use forkyard_config::{
    Address, Application, Environment, Limits, Listen, LogLevel, Logs, Pages, Php, Pool, ProcessManager,
    Replacement, Serving,
};
use forkyard_runtimes::php::protocol::{Answer, Command, SOCKET};
use forkyard_scoreboard::Board;
use forkyard_sys::fd::{pipe, send_with, socket_pair};
use forkyard_sys::identity::Identity;
use forkyard_sys::process;
use forkyard_worker::{GenerationContext, Settings, WorkerContext};
use nix::sys::socket::SockType;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

#[derive(Debug)]
pub(crate) struct Alone {
    preloader: i32,
    channel: Option<BufReader<UnixStream>>,
    workers: Vec<Worker>,
    forked: u64,
    pub(crate) socket: PathBuf,
    messages: OwnedFd,
    _held: (OwnedFd, Board),
    _directory: TempDir,
}

#[derive(Debug)]
struct Worker {
    pid: i32,
    _retire: OwnedFd,
}

impl Alone {
    pub(crate) fn start(setup: &Setup) -> Alone {
        let mut server = Alone::preload(setup).expect("the preloader becomes ready");
        for slot in 0..setup.workers {
            server.spawn(slot);
        }
        wait_for(&server.socket, || false);
        server
    }

    pub(crate) fn preload(setup: &Setup) -> Result<Alone, String> {
        let directory = directory();
        let socket = directory.path().join("forkyard.sock");
        let listener = UnixListener::bind(&socket).expect("the directory is writable");
        listener.set_nonblocking(true).expect("a socket");
        fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .expect("it is ours");
        let settings = settings(setup, &socket, setup.write_php_ini(directory.path()));
        let board = Board::create("compat", setup.workers as usize).expect("memory");
        let (queue_out, queue_in) = socket_pair(SockType::SeqPacket).expect("descriptors");
        let (accept_out, accept_notify) = pipe(true).expect("descriptors");
        let (messages, messages_in) = socket_pair(SockType::Stream).expect("descriptors");
        let copy = |fd: &OwnedFd| fd.try_clone().expect("descriptors");
        let context = GenerationContext {
            settings,
            listener: listener.into(),
            queue_out,
            queue_in,
            accept_notify,
            messages: messages_in,
            board_writable: copy(&board.memory().writable),
            board_readable: board.memory().readable().expect("the scoreboard"),
            http: None,
            group: None,
            lanes: None,
            turns: None,
            access: None,
        };

        let (ours, theirs) = UnixStream::pair().expect("descriptors");
        let program = env!("CARGO_BIN_EXE_forkyard-php");
        let output =
            OwnedFd::from(std::fs::File::create(directory.path().join("out")).expect("it is writable"));
        let program = process::Program {
            path: CString::new(program).expect("a path"),
            arguments: vec![CString::new(program).expect("a path")],
            environment: vec![c"PATH=/usr/bin:/bin".into(), c"SECRET=1".into()],
            descriptors: vec![(theirs.into(), SOCKET), (copy(&output), 1), (output, 2)],
            descriptor_limit: None,
        };
        let preloader = process::start(&program).expect("the preloader starts");
        drop(program);
        let mut server = Alone {
            preloader,
            channel: Some(BufReader::new(ours)),
            workers: Vec::new(),
            forked: 0,
            socket,
            messages,
            _held: (accept_out, board),
            _directory: directory,
        };
        let begin = Command::Begin {
            context: context.settings.clone(),
            warms_up: false,
            is_zygote: false,
            is_for_many: false,
        };
        match server.ask(&begin, &context.descriptors()) {
            Answer::Ready { version, .. } if version.starts_with(concat!(env!("FORKYARD_PHP"), ".")) => {
                Ok(server)
            }
            Answer::Error {
                worker: None,
                message,
            } => Err(message),
            other => panic!("{other:?} is no answer to begin"),
        }
    }

    fn ask(&mut self, command: &Command<Settings>, descriptors: &[i32]) -> Answer {
        let channel = self.channel.as_mut().expect("the preloader runs");
        let mut line = serde_json::to_vec(command).expect("plain values");
        line.push(b'\n');
        let sent = send_with(channel.get_ref().as_fd(), &line, descriptors).expect("the preloader listens");
        assert_eq!(sent, line.len(), "a short line");
        let mut answer = String::new();
        channel.read_line(&mut answer).expect("the preloader answers");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{answer:?} is no answer: {error}"))
    }

    pub(crate) fn spawn(&mut self, slot: u32) {
        self.forked += 1;
        let worker = self.forked;
        let (theirs, ours) = pipe(true).expect("descriptors");
        let own = WorkerContext {
            slot,
            stop_pipe: theirs,
            output: None,
            questions: None,
            channel: None,
        };
        match self.ask(
            &Command::Spawn {
                worker,
                slot,
                is_routed: false,
                parcel: None,
            },
            &own.descriptors(),
        ) {
            Answer::Ok { worker: same, pid } if same == worker => {
                self.workers.push(Worker { pid, _retire: ours });
            }
            other => panic!("{other:?} is no answer to spawn"),
        }
    }

    pub(crate) fn stop_preloader(&mut self) -> process::Ended {
        self.channel = None;
        let ended = process::reap_pid(self.preloader).expect("the preloader is our child");
        self.preloader = 0;
        ended
    }

    pub(crate) fn worker_pid(&self) -> i32 {
        self.workers[0].pid
    }

    /// Log lines so far: a digit for the level, and the text.
    pub(crate) fn log(&self) -> String {
        let mut bytes = vec![0; 64 * 1024];
        let count = nix::unistd::read(self.messages.as_fd(), &mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.channel = None;
        if self.preloader != 0 {
            let _ = process::reap_pid(self.preloader);
        }
        for worker in self.workers.drain(..) {
            let _ = process::send_signal(worker.pid, Signal::SIGKILL);
            let _ = process::reap_pid(worker.pid);
        }
    }
}

fn settings(setup: &Setup, socket: &Path, php_ini: PathBuf) -> Settings {
    let php = Php {
        version: env!("FORKYARD_PHP").into(),
        library: None,
        php_ini: Some(php_ini),
        no_php_ini: false,
        scan_dir: None,
        extended_info: false,
        binary: None,
        defines: vec![],
        script_root: None,
        limit_extensions: setup
            .limit_extensions
            .clone()
            .unwrap_or_else(|| vec![".php".to_owned(), ".phar".to_owned()]),
        request_settings: forkyard_config::RequestSettings::All,
        php_value: setup.php_value.clone(),
        php_admin_value: setup.php_admin_value.clone(),
        preloader_idle_timeout: Duration::from_secs(60),
        start_timeout: Duration::from_secs(60),
        warm_up: 0,
        warm_up_time: Duration::ZERO,
        preloading: forkyard_config::Preloading::Own,
        opcache_cache: None,
        worker: None,
    };
    let pool = Pool {
        title: "forkyard".to_owned(),
        name: "www".into(),
        listen: Listen {
            address: Address::Unix(socket.to_owned()),
            backlog: -1,
            mode: 0o660,
            ..Listen::default()
        },
        pm: ProcessManager::Static {
            max_children: setup.workers,
        },
        application: Application::Php(php),
        replacement: Replacement {
            stop_timeout: Duration::from_secs(10),
            ..Replacement::default()
        },
        serving: Serving {
            client_timeout: Duration::from_secs(20),
            keepalive_timeout: Duration::from_secs(20),
            wait_for_cpu: true,
            limits: Limits {
                params_bytes: 1 << 20,
                params_count: 10_000,
            },
            ..Serving::default()
        },
        environment: Environment {
            clear_env: true,
            env: setup.env.clone(),
            ..Environment::default()
        },
        pages: Pages {
            ping_path: setup.ping.then(|| "/ping".to_owned()),
            ping_response: "pong".into(),
            ..Pages::default()
        },
        logs: Logs {
            decorate_workers_output: true,
            ..Logs::default()
        },
        ..Pool::default()
    };
    let identity = if is_root() {
        Identity::look_up("www-data", None).expect("there is a user www-data")
    } else {
        Identity::current()
    };
    Settings {
        refork_at: None,
        process_name: String::new(),
        restart_mark: None,
        release: None,
        records_faults: false,
        turn: None,
        pool: pool.into(),
        identity: Some(identity),
        started: 0,
        slots: setup.workers,
        descriptor_limit: None,
        log_limit: 1024,
        log_level: LogLevel::Notice,
    }
}
