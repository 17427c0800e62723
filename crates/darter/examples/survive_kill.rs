//! Two processes share an index; one is killed in mid-write, and the other carries on.
//!
//! The parent starts this program again as a writer on the same pool, kills it with SIGKILL while
//! it writes, finds every write that was acknowledged, goes on writing itself, and has what the
//! dead process left half done given back.
//!
//! `cargo run -p darter --example survive_kill`

use darter::Store;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Acknowledgements to wait for before the kill.
const ACKNOWLEDGED: u64 = 2000;

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(url) = std::env::args().nth(1) {
        return write_for_ever(&url);
    }
    let scratch = Scratch::new();
    // `DARTER_POOL` names another pool without keys, on memory nodes say.
    let url =
        std::env::var("DARTER_POOL").unwrap_or_else(|_| format!("file:{}?size=64M", scratch.0.display()));
    let store = Store::open(&url)?;

    let mut child = Command::new(std::env::current_exe()?).arg(&url).stdout(Stdio::piped()).spawn()?;
    let acknowledged = kill_in_mid_write(&mut child)?;
    println!("killed the writer after {acknowledged} acknowledged writes");

    let session = store.session()?;
    for n in 1..=acknowledged {
        assert_eq!(
            session.get(n.to_be_bytes())?.as_deref(),
            Some(n.to_string().as_bytes()),
            "write {n} is lost"
        );
    }
    println!("all of them are there");
    for n in 1..=acknowledged {
        session.put(n.to_be_bytes(), "rewritten")?;
    }

    let check = store.repair()?;
    assert!(check.is_sound(), "{:?}", check.violations);
    println!(
        "{} keys, no violation, {} bytes of the dead given back",
        check.stats.keys, check.repaired_bytes
    );
    Ok(())
}

/// The child: writes pair after pair, and says so after each.
fn write_for_ever(url: &str) -> Result<(), Box<dyn Error>> {
    let session = Store::open(url)?.session()?;
    let mut out = std::io::stdout().lock();
    for n in 1_u64.. {
        session.put(n.to_be_bytes(), n.to_string())?;
        writeln!(out, "{n}")?;
    }
    Ok(())
}

/// Reads acknowledgements, kills, reads the rest; returns the last one.
fn kill_in_mid_write(child: &mut Child) -> Result<u64, Box<dyn Error>> {
    let out = child.stdout.take().ok_or("the child has no output")?;
    let mut last = 0;
    for line in BufReader::new(out).split(b'\n') {
        // The very last line may be cut short by the kill; it is then not an acknowledgement.
        let Ok(n) = String::from_utf8(line?)?.parse::<u64>() else { break };
        if n != last + 1 {
            break;
        }
        last = n;
        if n == ACKNOWLEDGED {
            child.kill()?;
        }
    }
    child.wait()?;
    if last < ACKNOWLEDGED { Err("the writer ended early".into()) } else { Ok(last) }
}

/// A pool file that goes with the program.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let shared_memory = PathBuf::from("/dev/shm");
        let directory = if shared_memory.is_dir() { shared_memory } else { std::env::temp_dir() };
        Self(directory.join(format!("darter-survive-kill-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
