//! Tests of stores of views: the properties common to all, on a file, on real etcd and Consul and a
//! real API server of Kubernetes, and on mock servers that reply as those programs' documentation
//! says or, if a test requires it, incorrectly.
//!
//! Tests with etcd skip themselves with a message if it is not installed (`scripts/test-tools`
//! installs it), unless `DARTER_TEST_ALL` is set. Tests with Consul and Kubernetes skip themselves
//! in any case: later Debian releases do not have Consul, and have Kubernetes only as source, from
//! which `scripts/test-tools --kubernetes` builds it.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test may panic

mod cluster;
mod consul;
mod contract;
mod etcd;
mod files;
mod kubernetes;
mod servers;
mod urls;
