//! Visitors of a shop whose release changes.

use super::{APPLICATIONS, Application, Shop};
use crate::support::prelude::*;

pub(super) fn application(name: &str) -> &'static Application {
    let mut all = APPLICATIONS.iter();
    all.find(|application| application.name == name)
        .expect("an application")
}

pub(super) const STATIC: &str = "pm = \"static\"\nmax_children = 4\n";
pub(super) const DYNAMIC: &str =
    "pm = \"dynamic\"\nmax_children = 6\nmin_spare_servers = 2\nmax_spare_servers = 4\n";
pub(super) const ONDEMAND: &str = "pm = \"ondemand\"\nmax_children = 6\n";

/// How long a visitor reads an answer.
const PACE: Duration = Duration::from_millis(25);

/// Visitors that ask until they are told to stop.
pub(in crate::it) struct Visitors(Load<String>);

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
        Visitors(Load::start(count, |number| {
            let (socket, params) = (socket.to_owned(), params.to_vec());
            let (mut client, mut turn) = (None, number);
            move || {
                let connect = || {
                    let client = Client::connect(&socket).expect("connect");
                    if is_kept { client.kept() } else { client }
                };
                turn += 1;
                let mut own: Client = client.take().unwrap_or_else(connect);
                let answer = own.request(&params[turn % params.len()], b"");
                client = is_kept.then_some(own);
                pause_for(PACE);
                match answer {
                    Ok(answer) => format!("{} {}", answer.status(), answer.body()),
                    Err(error) => format!("lost: {error}"),
                }
            }
        }))
    }

    pub(in crate::it) fn seen(&self, part: &str) -> u64 {
        self.0.count(|text| text.contains(part)) as u64
    }

    /// How often each answer came.
    pub(in crate::it) fn end(self) -> BTreeMap<String, u64> {
        let mut seen = BTreeMap::new();
        for text in self.0.end() {
            *seen.entry(text).or_insert(0) += 1;
        }
        seen
    }
}
