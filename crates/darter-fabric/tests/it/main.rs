//! The tests of local memory, of files and of the decorators, in one binary.

#![allow(clippy::unwrap_used, reason = "a test may panic, also outside the functions marked as tests")]

mod calls;
mod decorators;
#[cfg(not(miri))]
mod files;
mod verbs;
