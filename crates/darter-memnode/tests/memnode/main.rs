//! Memory nodes on loopback, as their clients and their operators see them.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test may panic

#[path = "../support/mod.rs"]
mod support;

mod absent;
mod auth;
mod calls;
mod durable;
mod examples;
mod executors;
mod groups;
mod links;
mod operating;
mod rdma;
mod rdma_failures;
mod tls;
mod verbs;
