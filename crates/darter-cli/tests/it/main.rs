//! The program from the user's point of view, with one module for each family of commands.

#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::format_collect)] // small inputs, and clear

mod backups;
mod bus_errors;
mod common;
mod copies;
mod daemon;
mod damage;
mod damaged_nodes;
mod disk_space;
mod drain;
mod durability;
mod groups;
mod help;
mod interrupt;
mod load;
mod lost_nodes;
mod memnode;
mod operating;
mod outputs;
mod permissions;
mod program;
mod rebalance;
mod redis_import;
mod redis_table;
mod restarts;
mod scene;
mod serve;
mod shell;
mod usage;
mod work;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_darter");
