//! Two hundred applications under one socket, driven at random, with restarts and deletions.

use super::{Sites, get};
use crate::random::{Random, number};
use crate::support::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicUsize};

const APPLICATIONS: u32 = 200;
const MAX: usize = 20;
const CLIENTS: u64 = 8;

#[derive(Debug, Default)]
struct Known {
    removed: AtomicBool,
    newest: AtomicU32,
    oldest: AtomicU32,
}

fn code(sites: &Sites, name: &str, kind: u32, version: u32, is_new: bool) {
    let said = format!("{name} {version}");
    let (file, text) = match kind {
        0 => ("index.php", format!("<?php echo '{said}';")),
        1 => (
            "passenger_wsgi.py",
            format!(
                "def application(environ, start_response):\n    start_response('200 OK', [('Content-Type', \
                 'text/plain')])\n    return [b'{said}']\n# {}\n",
                "x".repeat(version as usize)
            ),
        ),
        _ => (
            "run.cgi",
            format!("#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\n\\r\\n{said}'\n"),
        ),
    };
    if is_new {
        let settings = "runtime = \"cgi\"\nentry = \"run.cgi\"\n";
        let mut files = vec![(file, text.as_str())];
        if kind == 2 {
            files.push(("forkyard.toml", settings));
        }
        sites.add(name, version as usize, &files);
        return;
    }
    let root = sites.apps.join(name);
    let made = root.join(".new");
    let written = fs::write(&made, text).and_then(|()| {
        let owner = fs::metadata(root.join(file))?;
        let (uid, gid) = {
            use std::os::unix::fs::MetadataExt;
            (owner.uid(), owner.gid())
        };
        if is_root() {
            chown(&made, Some(uid), Some(gid))?;
        }
        fs::set_permissions(&made, owner.permissions())?;
        fs::rename(&made, root.join(file))?;
        fs::write(root.join("tmp/restart.txt"), "")
    });
    written.expect("deploy");
}

#[test]
fn many_applications_under_one_socket() {
    let seed = number("FORKYARD_SEED").unwrap_or(std::process::id().into());
    let is_rolling = seed % 2 == 1;
    let sites = Sites::start_with(
        &format!(
            "max = {MAX}\nmax_idle_time = \"2s\"\nmax_spawning = 6\nmax_request_queue_size = 0\n\
             rolling_restarts = {is_rolling}"
        ),
        "",
    );
    let time = Duration::from_secs(number("FORKYARD_SITES_SECONDS").unwrap_or(20));
    println!("FORKYARD_SEED={seed}");
    let known: Arc<Vec<Known>> = Arc::new((0..APPLICATIONS).map(|_| Known::default()).collect());
    for at in 0..APPLICATIONS {
        code(&sites, &format!("app{at}"), at % 3, 0, true);
    }
    let (stop, wrong, count) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(Mutex::new(Vec::<String>::new())),
        Arc::new(AtomicUsize::new(0)),
    );
    let stop_load = StopAtEnd(Arc::clone(&stop));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (known, stop, wrong) = (Arc::clone(&known), Arc::clone(&stop), Arc::clone(&wrong));
            let (count, port) = (Arc::clone(&count), sites.nginx.port);
            std::thread::spawn(move || {
                let mut random = Random::new(seed ^ (client << 32));
                while !stop.load(Ordering::Relaxed) {
                    let at = match random.percent(70) {
                        true => random.below(10),
                        false => random.below(APPLICATIONS as usize),
                    };
                    let app = &known[at];
                    let was_removed = app.removed.load(Ordering::SeqCst);
                    let oldest = app.oldest.load(Ordering::SeqCst);
                    let answer = get(port, &format!("/app{at}/"));
                    let newest = app.newest.load(Ordering::SeqCst);
                    let is_removed = app.removed.load(Ordering::SeqCst);
                    count.fetch_add(1, Ordering::Relaxed);
                    let is_right = match &answer {
                        Ok((200, body)) => {
                            let mut words = body.split_whitespace();
                            let name = words.next() == Some(format!("app{at}").as_str());
                            let version = words.next().and_then(|version| version.parse().ok());
                            name && version.is_some_and(|version: u32| (oldest..=newest).contains(&version))
                        }
                        Ok(_) => is_removed || was_removed,
                        Err(_) => false,
                    };
                    if !is_right {
                        let text = format!("/app{at}/ ({oldest} to {newest}): {answer:?}");
                        wrong.lock().expect("wrong").push(text);
                    }
                }
            })
        })
        .collect();
    let mut random = Random::new(seed);
    let (end, mut most, mut restarts) = (Instant::now() + time, 0, BTreeMap::<usize, u32>::new());
    while Instant::now() < end && wrong.lock().expect("wrong").is_empty() {
        most = most.max(sites.instances().len());
        let at = random.below(APPLICATIONS as usize);
        let app = &known[at];
        if app.removed.load(Ordering::SeqCst) {
            continue;
        }
        match random.below(40) {
            0..=2 => {
                let version = app.newest.fetch_add(1, Ordering::SeqCst) + 1;
                code(&sites, &format!("app{at}"), at as u32 % 3, version, false);
                if !is_rolling {
                    app.oldest.store(version, Ordering::SeqCst);
                }
                *restarts.entry(at).or_default() += 1;
            }
            3 => {
                app.removed.store(true, Ordering::SeqCst);
                let _ = fs::rename(
                    sites.apps.join(format!("app{at}")),
                    sites.daemon.dir.join(format!(".gone{at}")),
                );
            }
            _ => pause(),
        }
    }
    drop(stop_load);
    for client in clients {
        client.join().expect("client");
    }
    let wrong = wrong.lock().expect("wrong").clone();
    let requests = count.load(Ordering::Relaxed);
    println!(
        "{requests} requests, {} restarts, at most {most} instances",
        restarts.values().sum::<u32>()
    );
    assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    assert!(most <= MAX + 1, "{most} instances");
    assert!(requests > 100, "only {requests} requests");
    wait_until("all to sleep", || sites.instances().is_empty());
}
