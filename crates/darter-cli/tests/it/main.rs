//! The program as its user meets it, one module a family of commands, and the check of how the
//! workspace is built.

#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::format_collect)] // small inputs, and clear

mod bus_errors;
mod common;
mod compare;
mod copies;
mod damage;
mod damaged_nodes;
mod deaths;
mod disk_space;
mod durability;
mod groups;
mod help;
mod interrupt;
mod load;
mod memnode;
mod modules;
mod operating;
mod outputs;
mod permissions;
mod program;
mod redis_table;
mod restarts;
mod scene;
mod serve;
mod shell;
mod stress;
mod usage;
mod xstore;
