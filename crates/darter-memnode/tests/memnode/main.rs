//! Memory nodes on loopback, from the point of view of their clients and operators.

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
mod limits;
mod links;
mod operating;
mod rdma;
mod rdma_failures;
mod reading;
mod rotation;
mod tls;
mod verbs;
