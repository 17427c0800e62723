//! A pool of worker processes that take jobs from one queue. One of them is killed by SIGKILL while it
//! works, and no job is lost or done twice.
//!
//! `cargo run -p darter --example worker_pool`

use darter::{Store, Table};
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::process::{Child, Command};
use std::time::Duration;

const JOBS: u64 = 200;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Job {
    Waiting,
    /// Taken by the process with this number.
    Taken(u32),
    /// With its result.
    Done(u64),
}

/// A worker takes the first job that waits, works, and stores the result.
fn work(url: &str) -> Result<(), Box<dyn Error>> {
    let jobs: Table<u64, Job> = Store::open(url)?.table("jobs")?;
    let me = std::process::id();
    for pair in &jobs {
        let (number, _) = pair?;
        let take = |job: Option<Job>| match job {
            Some(Job::Waiting) => darter::Change::Put(Job::Taken(me)),
            _ => darter::Change::Keep, // another worker was faster
        };
        if jobs.update(&number, take)? {
            std::thread::sleep(Duration::from_millis(1));
            jobs.put(&number, &Job::Done(number * number))?;
        }
    }
    Ok(())
}

/// Makes the jobs of a dead worker wait again. Returns their number.
fn give_back(jobs: &Table<u64, Job>, dead: u32) -> Result<u64, darter::Error> {
    let mut given = 0;
    for pair in jobs {
        let (number, _) = pair?;
        given += u64::from(jobs.update(&number, |job| match job {
            Some(Job::Taken(worker)) if worker == dead => darter::Change::Put(Job::Waiting),
            _ => darter::Change::Keep,
        })?);
    }
    Ok(given)
}

fn start(url: &str) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(url).spawn()
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(url) = std::env::args().nth(1) {
        return work(&url);
    }
    let directory = tempfile::tempdir()?;
    let url = format!("file:{}?size=64M", directory.path().join("pool").display());
    let jobs: Table<u64, Job> = Store::open(&url)?.table("jobs")?;
    jobs.put_many(&(0..JOBS).map(|number| (number, Job::Waiting)).collect::<Vec<_>>())?;

    let mut workers = [start(&url)?, start(&url)?, start(&url)?];
    while !jobs.iter().any(|pair| pair.is_ok_and(|(_, job)| job == Job::Taken(workers[0].id()))) {
        std::thread::yield_now(); // until the first one works on a job
    }
    workers[0].kill()?; // SIGKILL; no other worker waits
    for worker in &mut workers {
        worker.wait()?;
    }
    println!("killed a worker; {} of its jobs wait again", give_back(&jobs, workers[0].id())?);
    work(&url)?; // or by a new worker

    for pair in &jobs {
        let (number, job) = pair?;
        assert_eq!(job, Job::Done(number * number));
    }
    println!("all {JOBS} jobs are done");
    Ok(())
}
