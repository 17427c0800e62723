//! Five tasks, each as a program for darter, redb and fjall: runs them, and prints the lines and
//! names that each takes, a table that docs/library.md shows.
//!
//! `cargo run -p darter-lab-bench --features peers --example tasks`; with `-- --names`, each name.

mod count;
mod batch {
    pub(crate) mod darter;
    pub(crate) mod fjall;
    pub(crate) mod redb;
}
mod counter {
    pub(crate) mod darter;
    pub(crate) mod fjall;
    pub(crate) mod redb;
}
mod map {
    pub(crate) mod darter;
    pub(crate) mod fjall;
    pub(crate) mod redb;
}
mod series {
    pub(crate) mod darter;
    pub(crate) mod fjall;
    pub(crate) mod redb;
}
mod typed {
    pub(crate) mod darter;
    pub(crate) mod fjall;
    pub(crate) mod redb;
}

use std::error::Error;
use std::path::Path;

struct Program {
    /// Its file, without `.rs`.
    path: &'static str,
    source: &'static str,
    run: fn(&Path) -> Result<(), Box<dyn Error>>,
}

macro_rules! programs {
    ($task:ident) => {
        [programs!($task, darter), programs!($task, redb), programs!($task, fjall)]
    };
    ($task:ident, $store:ident) => {
        Program {
            path: concat!(stringify!($task), "/", stringify!($store)),
            source: include_str!(concat!(stringify!($task), "/", stringify!($store), ".rs")),
            run: $task::$store::run,
        }
    };
}

/// The tasks, each with its programs for darter, redb and fjall.
const TASKS: [(&str, [Program; 3]); 5] = [
    ("a map: put, get, remove, ordered range", programs!(map)),
    ("a counter that several processes increment", programs!(counter)),
    ("values of the program's own type", programs!(typed)),
    ("the newest entries of a time series", programs!(series)),
    ("many writes in one call", programs!(batch)),
];

/// Returns the table of lines and names, with links from the folder `docs`.
fn table() -> String {
    let row = |(task, programs): &(_, [Program; 3])| {
        let cells = programs.iter().map(|Program { path, source, .. }| {
            let (lines, names) = (count::lines(source), count::names(source).len());
            format!(" [{lines} lines, {names} names](../lab/bench/examples/tasks/{path}.rs) |")
        });
        format!("| {task} |{}\n", cells.collect::<String>())
    };
    let rows: String = TASKS.iter().map(row).collect();
    format!("| task | darter | redb | fjall |\n|---|---|---|---|\n{rows}")
}

fn main() -> Result<(), Box<dyn Error>> {
    for Program { path, source, run } in TASKS.iter().flat_map(|(_, programs)| programs) {
        run(tempfile::tempdir()?.path()).map_err(|error| format!("{path}: {error}"))?;
        if std::env::args().any(|word| word == "--names") {
            println!("{path}: {}", count::names(source).into_iter().collect::<Vec<_>>().join(" "));
        }
    }
    print!("{}", table());
    Ok(())
}

#[test]
fn every_program_runs_and_the_page_shows_the_counts() {
    main().expect("programs that run");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/library.md");
    let page = std::fs::read_to_string(page).expect("a page");
    assert!(page.contains(&table()), "docs/library.md must show:\n{}", table());
}
