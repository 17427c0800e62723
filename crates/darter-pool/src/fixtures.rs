//! Pools over the simulated fabric for tests of races that few schedules meet: one process stops
//! between two of its round trips while others continue.

use darter_fabric::decorate::{Delay, Delaying};
use darter_fabric::{Endpoint, Fabric, GlobalAddr, block_on};
use darter_sim::Sim;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::{Pool, PoolOptions};

/// How long a member may be silent, in milliseconds.
pub(crate) const LEASE_MS: u64 = 100;

/// A process's fabric that is pending once before each batch.
pub(crate) fn slow(sim: &Sim, process: u32) -> Delaying<Sim> {
    Delaying::new(sim.process(process), Delay { pending_before: 1, ..Delay::default() })
}

pub(crate) fn options() -> PoolOptions {
    PoolOptions { block_bytes: Some(256 << 10), lease_ms: LEASE_MS, ..PoolOptions::default() }
}

pub(crate) fn create(sim: &Sim) -> Pool<Sim> {
    block_on(Pool::create(sim.clone(), &options())).unwrap()
}

pub(crate) fn open(sim: &Sim, process: u32) -> Pool<Sim> {
    block_on(Pool::open(sim.process(process))).unwrap()
}

pub(crate) fn open_first(sim: &Sim, process: u32) -> Pool<Sim> {
    block_on(Pool::create(sim.process(process), &options())).unwrap()
}

pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls a future `polls` times; returns whether it is still pending.
pub(crate) fn is_pending_after<F: Future>(mut future: Pin<&mut F>, polls: usize) -> bool {
    (0..polls).all(|_| poll(future.as_mut()).is_pending())
}

pub(crate) fn maintain<F: Fabric>(pool: &Pool<F>, rounds: usize) {
    let mut client = pool.client().unwrap();
    for _ in 0..rounds {
        block_on(pool.maintain(&mut client)).unwrap();
    }
}

pub(crate) fn word_at(sim: &Sim, addr: GlobalAddr) -> u64 {
    let mut endpoint = sim.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let read = batch.read(addr, 1);
    block_on(endpoint.submit(batch)).unwrap().words(read)[0]
}

pub(crate) fn add_to(sim: &Sim, addr: GlobalAddr, bits: u64) {
    let mut endpoint = sim.endpoint().unwrap();
    let mut batch = endpoint.batch();
    batch.faa(addr, bits);
    block_on(endpoint.submit(batch)).unwrap();
}
