//! The store behind a network that loses data or goes silent.

use super::*;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Condvar, Mutex};

const PASSES: u8 = 0;
const IS_LOST: u8 = 1;
const ANSWER_IS_LOST: u8 = 2;

/// A network between store and server: it cuts a COMMIT or its answer, or goes silent without an end.
struct Network {
    directory: tempfile::TempDir,
    commit: Arc<AtomicU8>,
    stuck: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().expect("the gate") = is_shut;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let is_shut = self.is_shut.lock().expect("the gate");
        drop(
            self.opened
                .wait_while(is_shut, |is_shut| *is_shut)
                .expect("the gate"),
        );
    }
}

impl Network {
    fn new() -> Network {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = ".s.PGSQL.5432";
        let listener = UnixListener::bind(directory.path().join(socket)).expect("a socket");
        let commit = Arc::new(AtomicU8::new(PASSES));
        let fate = Arc::clone(&commit);
        let stuck = Arc::new(Gate::default());
        let gate = Arc::clone(&stuck);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let gate = Arc::clone(&gate);
                let server = UnixStream::connect(server().directory.join(socket)).expect("the server");
                let fate = Arc::clone(&fate);
                std::thread::spawn(move || Network::pass(client, server, &fate, &gate));
            }
        });
        Network {
            directory,
            commit,
            stuck,
        }
    }

    fn pass(mut client: UnixStream, mut server: UnixStream, commit: &AtomicU8, stuck: &Arc<Gate>) {
        let is_mute = Arc::new(AtomicBool::new(false));
        let back = {
            let mut client = client.try_clone().expect("a descriptor");
            let mut server = server.try_clone().expect("a descriptor");
            let is_mute = Arc::clone(&is_mute);
            let stuck = Arc::clone(stuck);
            move || {
                let mut bytes = [0; 4_096];
                while let Ok(count @ 1..) = server.read(&mut bytes) {
                    stuck.pass();
                    if is_mute.load(Ordering::SeqCst) || client.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
            }
        };
        std::thread::spawn(back);
        let mut bytes = [0; 4_096];
        while let Ok(count @ 1..) = client.read(&mut bytes) {
            stuck.pass();
            if bytes[..count].ends_with(b"COMMIT\0") {
                match commit.swap(PASSES, Ordering::SeqCst) {
                    IS_LOST => break,
                    ANSWER_IS_LOST => is_mute.store(true, Ordering::SeqCst),
                    _ => {}
                }
            }
            if server.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}

#[test]
fn what_a_commit_brought_is_known_although_it_or_its_answer_was_lost() {
    let network = Network::new();
    let database = TestDatabase::new();
    let mut store = database.through(&network).open("me");
    let id = push(&mut store, job(""));
    let mut raw = database.raw();
    let mut running = || -> Vec<(i64, i64)> {
        let rows = raw.query("SELECT id, attempt FROM forkyard.running", &[]);
        rows.expect("rows")
            .iter()
            .map(|row| (row.get(0), row.get(1)))
            .collect()
    };
    let mut lose = |commit, operation: Operation| {
        network.commit.store(commit, Ordering::SeqCst);
        let failed = store.perform(&[operation], 1);
        assert!(failed.is_err() && store.is_in_doubt(), "{failed:?}");
        let begun = Instant::now();
        loop {
            match store.resolve() {
                Ok(brought) => break brought,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
        }
    };
    let claim = || Operation::Claim(GroupName::new("q", ""));
    assert!(lose(IS_LOST, claim()).is_none());
    assert_eq!(running(), []);
    let brought = lose(ANSWER_IS_LOST, claim()).expect("it was committed");
    let Reply::Claimed(_, Some(job)) = &brought.replies[0] else {
        panic!("{brought:?}");
    };
    assert_eq!(
        (running(), job.start.id, job.start.attempt),
        (vec![(id, 1)], id, 1)
    );
    assert!(lose(IS_LOST, finished(job, Becomes::Done(TaskStatus::Ok))).is_none());
    assert_eq!(running(), [(id, 1)]);
    assert!(lose(ANSWER_IS_LOST, finished(job, Becomes::Done(TaskStatus::Ok))).is_some());
    assert_eq!(running(), []);
}

impl TestDatabase {
    fn through(&self, network: &Network) -> TestDatabase {
        let own = server().directory.display().to_string();
        let through = network.directory.path().display().to_string();
        TestDatabase {
            url: self.url.replace(&own, &through),
        }
    }
}

/// A missing answer shows a silent network or a hanging server.
#[test]
fn a_network_that_forwards_nothing_more_is_noticed_and_what_was_done_meanwhile_is_known() {
    let network = Network::new();
    let database = TestDatabase::new();
    let mut store = database.through(&network).open("me");
    let next = heard(&mut store);
    assert_eq!(next(), Notice::News, "it hears");
    let first = push(&mut store, job(""));
    network.stuck.set(true);
    let begun = Instant::now();
    let refused = store
        .perform(&[Operation::Push(vec![job("")])], 1)
        .expect_err("nothing comes");
    let took = begun.elapsed();
    assert!(
        !store.is_in_doubt() && refused.to_string().contains("did not answer within 10 s"),
        "{refused}"
    );
    assert!(
        (Duration::from_secs(10)..Duration::from_secs(40)).contains(&took),
        "{took:?}"
    );
    network.stuck.set(false);
    let second = push(&mut store, job(""));
    assert!(second > first);
    // The listening connection also notices it, and reads missed notices.
    assert_eq!(next(), Notice::News, "it hears again");
    assert_eq!(claim(&mut store, "", 1).0.expect("a job").start.id, first);
    assert_eq!(claim(&mut store, "", 1).0.expect("a job").start.id, second);
    assert!(
        claim(&mut store, "", 1).0.is_none(),
        "the push that was refused was undone"
    );
}
