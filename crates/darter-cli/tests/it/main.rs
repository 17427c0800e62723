//! The program as its user meets it, one module a family of commands, and the check of how the
//! workspace is built.

#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::format_collect)] // small inputs, and clear

mod common;
mod compare;
mod deaths;
mod memnode;
mod modules;
mod operating;
mod program;
mod serve;
mod stress;
