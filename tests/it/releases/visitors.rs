//! Visitors of a shop whose release changes.

use super::{APPLICATIONS, Application, Shop};
use crate::support::prelude::*;
use std::thread::JoinHandle;

pub(super) fn application(name: &str) -> &'static Application {
    let mut all = APPLICATIONS.iter();
    all.find(|application| application.name == name)
        .expect("an application")
}

pub(super) const STATIC: &str = "pm = \"static\"\nmax_children = 4\n";
pub(super) const DYNAMIC: &str =
    "pm = \"dynamic\"\nmax_children = 6\nmin_spare_servers = 2\nmax_spare_servers = 4\n";
pub(super) const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 6\n";

/// Visitors that ask until they are told to stop.
pub(in crate::it) struct Visitors {
    is_over: Arc<AtomicBool>,
    /// How often each answer came.
    seen: Arc<Mutex<BTreeMap<String, u64>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Visitors {
    /// `is_kept`: a visitor keeps its connection.
    pub(super) fn start(shop: &Shop, routes: &[&str], count: usize, is_kept: bool) -> Visitors {
        let root = shop.daemon.dir.join("current");
        let script = shop.application.files[0].0;
        let params = routes.iter();
        let params = params.map(|route| Params::get(&root, script, "").with("REQUEST_URI", route));
        let socket = shop.daemon.socket("shop");
        Visitors::asking(&socket, &params.collect::<Vec<_>>(), count, is_kept)
    }

    /// Starts visitors that send these requests in turn.
    pub(in crate::it) fn asking(socket: &Path, params: &[Params], count: usize, is_kept: bool) -> Visitors {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let threads = (0..count).map(|number| {
            let (is_over, seen) = (Arc::clone(&is_over), Arc::clone(&seen));
            let (socket, params) = (socket.to_owned(), params.to_vec());
            std::thread::spawn(move || {
                let connect = || {
                    let client = Client::connect(&socket).expect("connect");
                    if is_kept { client.kept() } else { client }
                };
                let mut client = None;
                let mut turn = number;
                while !is_over.load(Ordering::Relaxed) {
                    turn += 1;
                    let mut own = client.take().unwrap_or_else(connect);
                    let answer = own.request(&params[turn % params.len()], b"");
                    let text = match answer {
                        Ok(answer) => format!("{} {}", answer.status(), answer.body()),
                        Err(error) => format!("lost: {error}"),
                    };
                    *seen.lock().expect("seen").entry(text).or_insert(0) += 1;
                    client = is_kept.then_some(own);
                    pause();
                }
            })
        });
        let threads = threads.collect();
        Visitors {
            is_over,
            seen,
            threads,
        }
    }

    pub(in crate::it) fn seen(&self, part: &str) -> u64 {
        let seen = self.seen.lock().expect("seen");
        let counts = seen.iter().filter(|(text, _)| text.contains(part));
        counts.map(|(_, count)| count).sum()
    }

    pub(in crate::it) fn end(self) -> BTreeMap<String, u64> {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a visitor");
        }
        let seen = self.seen.lock().expect("seen");
        seen.clone()
    }
}
