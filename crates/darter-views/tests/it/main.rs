//! Stores of views: what all of them do, on a file, on real etcd and Consul and a real API server of
//! Kubernetes, and on servers that answer as those programs' documents say and, when a test wants it,
//! wrongly.
//!
//! Tests with etcd skip themselves and say so where it is not installed (`scripts/test-tools`
//! installs it), unless `DARTER_TEST_ALL` is set. Those with Consul and Kubernetes skip themselves
//! in any case: Debian's later releases lack the one, and have the source of the other, of which
//! `scripts/test-tools --kubernetes` builds it.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test may panic

mod cluster;
mod consul;
mod contract;
mod etcd;
mod files;
mod kubernetes;
mod servers;
mod urls;
