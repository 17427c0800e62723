//! The `tcp` provider under load: tasks that post one verb after another on one thread's loop.

use super::{Load, READ_WORDS, REGION_WORDS, Rate, Verb};
use darter_bench::outcome::latency_histogram;
use darter_bench::permutation::mix64;
use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, Tcp, run_all};
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::Instant;

/// One verb in this many of a task is timed.
const LATENCY_EVERY: u64 = 16;

/// One measurement.
pub(super) fn measure(load: Load, fabric: &Tcp) -> Result<Rate, FabricError> {
    let latency = latency_histogram();
    let run = Run {
        load,
        begin: Instant::now(),
        has_ended: Cell::new(false),
        done: Cell::new(0),
        latency: RefCell::new(latency),
    };
    let run = &run;
    let endpoints = (0..load.in_flight).map(|_| fabric.endpoint()).collect::<Result<Vec<_>, _>>()?;
    let ended =
        run_all(endpoints.into_iter().enumerate().map(|(task, endpoint)| run.task(task as u64, endpoint)));
    ended.into_iter().collect::<Result<(), _>>()?;
    let seconds = run.begin.elapsed().as_secs_f64();
    let us = |quantile| run.latency.borrow().value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Rate { per_s: run.done.get() as f64 / seconds, p50_us: us(0.5), p99_us: us(0.99) })
}

struct Run {
    load: Load,
    begin: Instant,
    has_ended: Cell<bool>,
    done: Cell<u64>,
    latency: RefCell<Histogram<u64>>,
}

impl Run {
    async fn task(&self, task: u64, mut endpoint: impl Endpoint) -> Result<(), FabricError> {
        let mut n = 0_u64;
        while !self.has_ended.get() {
            n += 1;
            let begin = n.is_multiple_of(LATENCY_EVERY).then(Instant::now);
            let offset = (mix64((task << 40) + n) % (REGION_WORDS as u64 * 8)) & !127;
            let addr = GlobalAddr::new(0, offset);
            let mut batch = endpoint.batch();
            match self.load.verb {
                Verb::Read => {
                    let read = batch.read(addr, READ_WORDS);
                    let done = endpoint.submit(batch).await?;
                    black_box(done.words(read)[0]);
                    endpoint.recycle(done);
                }
                Verb::Cas => {
                    let cas = batch.cas(addr, 0, 0);
                    let done = endpoint.submit(batch).await?;
                    black_box(done.found(cas));
                    endpoint.recycle(done);
                }
            }
            self.done.set(self.done.get() + 1);
            if let Some(begin) = begin {
                self.latency.borrow_mut().saturating_record(begin.elapsed().as_nanos() as u64);
                if self.begin.elapsed().as_secs_f64() >= self.load.seconds {
                    self.has_ended.set(true);
                }
            }
        }
        Ok(())
    }
}
