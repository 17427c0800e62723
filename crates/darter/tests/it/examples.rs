//! Every example runs to its end; they assert what they show. `darter-memnode` runs them over memory
//! nodes.

use crate::example_runner::runs;

#[test]
fn map() {
    runs("map", None);
}

#[test]
fn multi_get_and_scan() {
    runs("multi_get_and_scan", None);
}

#[test]
fn typed_values() {
    runs("typed_values", None);
}

#[test]
fn survive_kill() {
    runs("survive_kill", None);
}

#[test]
fn quickstart() {
    runs("quickstart", None);
}

#[test]
fn cookbook() {
    runs("cookbook", None);
}

#[test]
fn worker_pool() {
    runs("worker_pool", None);
}

#[test]
fn time_series() {
    runs("time_series", None);
}

#[test]
fn secondary_index() {
    runs("secondary_index", None);
}

#[test]
fn tokio_service() {
    runs("tokio_service", None);
}
