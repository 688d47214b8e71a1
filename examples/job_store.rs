//! Works with a job store and records each result, so that a test can kill it at any moment and check the store:
//! `job_store work STORE TOLD`, `job_store check STORE TOLD`. `scripts/store-faults` runs it.

use forkyard_jobs::core::{Becomes, Counters, GroupName, Outcome, TaskStatus, Verdict};
use forkyard_jobs::store::sql::Database;
use forkyard_jobs::store::{Claimed, Finished, Operation, Output, Reply, Sqlite, Store};
use forkyard_protocol::jobs::NewJob;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Jobs that are pushed and done.
const COUNT: usize = 12;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["work", store, told] => work(Path::new(store), Path::new(told)),
        ["check", store, told] => check(Path::new(store), Path::new(told)),
        _ => Err("job_store work|check STORE TOLD".into()),
    }
}

fn open(path: &Path, owner: &str) -> Result<Store, Box<dyn Error>> {
    Ok(Store::new(Box::new(Sqlite::open(path)?), owner, Duration::MAX))
}

fn one(store: &mut Store, operation: Operation) -> Result<Reply, Box<dyn Error>> {
    Ok(store.perform(&[operation], 1)?.replies.remove(0))
}

fn claim(store: &mut Store) -> Result<Option<Box<Claimed>>, Box<dyn Error>> {
    match one(store, Operation::Claim(GroupName::new("q", "")))? {
        Reply::Claimed(_, job) => Ok(job),
        other => Err(format!("{other:?}").into()),
    }
}

fn finish(store: &mut Store, job: &Claimed) -> Result<(), Box<dyn Error>> {
    let finished = Finished {
        id: job.start.id,
        attempt: job.start.attempt,
        verdict: Verdict {
            becomes: Becomes::Done(TaskStatus::Ok),
            counters: Counters::default(),
            outcome: Outcome::Done,
        },
        output: Output {
            result: b"done".to_vec(),
            ..Output::default()
        },
        duration_ms: 0,
    };
    one(store, Operation::Finish(Box::new(finished))).map(|_| ())
}

/// One call for each line: none is cut in two.
fn say(told: &mut std::fs::File, word: &str, id: i64) -> std::io::Result<()> {
    told.write_all(format!("{word} {id}\n").as_bytes())
}

fn work(path: &Path, told: &Path) -> Result<(), Box<dyn Error>> {
    let mut told = std::fs::File::create(told)?;
    let mut store = open(path, "killed")?;
    let sync = store.syncer().ok_or("no disk")?;
    for _ in 0..COUNT {
        let job = NewJob {
            queue: "q".to_owned(),
            kind: "k".to_owned(),
            payload: b"{}".to_vec(),
            ..NewJob::default()
        };
        if let Reply::Pushed(pushed) = one(&mut store, Operation::Push(vec![job]))? {
            sync()?;
            say(&mut told, "pushed", pushed[0].id)?;
        }
        let job = claim(&mut store)?.ok_or("no job")?;
        say(&mut told, "started", job.start.id)?;
        finish(&mut store, &job)?;
        say(&mut told, "done", job.start.id)?;
    }
    Ok(())
}

fn check(path: &Path, told: &Path) -> Result<(), Box<dyn Error>> {
    let told = std::fs::read_to_string(told).unwrap_or_default();
    let mut last: BTreeMap<i64, &str> = BTreeMap::new();
    for line in told.lines() {
        let (word, id) = line.split_once(' ').ok_or("a line that is not whole")?;
        last.insert(id.parse()?, word);
    }
    let mut database = Sqlite::open(path)?;
    database.query("PRAGMA integrity_check", &[], &mut |row| {
        assert_eq!(row.text(0)?.as_deref(), Some("ok"));
        Ok(())
    })?;
    drop(database);
    let mut store = open(path, "next")?;
    let Reply::Foreign { jobs, .. } = one(&mut store, Operation::Foreign)? else {
        return Err("nothing is told of others".into());
    };
    for (id, word) in &last {
        let Reply::Show(Some(view)) = one(&mut store, Operation::Show(*id))? else {
            return Err(format!("job {id} was {word}, and is gone").into());
        };
        let is_right = match *word {
            "done" => view.state == "done" && view.result.as_deref() == Some("done"),
            // It may have ended without a word of it.
            "started" => {
                view.state == "done"
                    || jobs
                        .iter()
                        .any(|job| (job.start.id, job.start.attempt) == (*id, 1))
            }
            _ => true,
        };
        if !is_right {
            return Err(format!("job {id} was {word}: {view:?}").into());
        }
    }
    while let Some(job) = claim(&mut store)? {
        finish(&mut store, &job)?;
    }
    Ok(())
}
