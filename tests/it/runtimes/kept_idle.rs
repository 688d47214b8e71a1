//! Many idle kept connections to a worker with concurrent requests take nothing from others.

use super::python::start_as;
use crate::support::prelude::*;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

const DESCRIPTORS: usize = 1024;

fn params(path: &str, query: &str) -> Params {
    Params::get(Path::new("/srv"), path, query)
}

#[test]
fn a_thousand_kept_connections_without_a_request_keep_nobody_waiting() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("setrlimit");
    }
    let files = [("asgi.py", super::concurrent::APPLICATION)];
    let settings = format!("pm = \"static\"\nmax_children = 1\nrlimit_files = {DESCRIPTORS}\n");
    let (daemon, root) = start_as("asgi", &files, &settings, "concurrency = 100\n");
    fs::write(root.path().join("go"), "").expect("go");
    let ask = |client: &mut Client, number: usize| {
        let answer = client.request(&params("until", &number.to_string()), b"")?;
        assert!(answer.body().parse::<u32>().is_ok(), "{}", answer.text());
        std::io::Result::Ok(())
    };
    let mut kept: Vec<Client> = Vec::new();
    for number in 0..1000 {
        let mut client = daemon.client("www").kept();
        ask(&mut client, number).expect("an answer");
        kept.push(client);
    }
    let mut new: Vec<Client> = (0..100).map(|_| daemon.client("www").kept()).collect();
    for (number, client) in new.iter_mut().enumerate() {
        client
            .send(&params("until", &number.to_string()), b"")
            .expect("send");
    }
    for client in &mut new {
        let answer = client.answer().expect("an answer");
        assert!(answer.body().parse::<u32>().is_ok(), "{}", answer.text());
    }
    for (number, client) in new.iter_mut().enumerate() {
        ask(client, number).expect("an answer on a kept connection");
    }
    let mut served = 0;
    for (number, client) in kept.iter_mut().enumerate() {
        served += usize::from(ask(client, number).is_ok());
    }
    assert!(
        (100..=DESCRIPTORS / 4).contains(&served),
        "{served} of the kept ones are served"
    );
    assert_lacks(&daemon.log(), "can't accept");
}
