//! Stores of views: what all of them do, on a file, on real etcd and Consul servers, and on servers
//! that answer as the documents of Consul and Kubernetes say and, when a test wants it, wrongly.
//!
//! Tests with etcd skip themselves and say so where it is not installed (`scripts/test-tools`
//! installs it), unless `DARTER_TEST_ALL` is set; those with Consul skip themselves in any case,
//! since Debian has it no more in its later releases.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test may panic

mod cluster;
mod consul;
mod contract;
mod etcd;
mod files;
mod servers;
mod urls;
