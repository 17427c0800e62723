//! Random delays: the batches that are delayed, where and for how long, and how a batch is posted
//! in two parts.
//!
//! The first part contains verbs that a network and its NICs may deliver first. Verbs of one batch
//! to one memory node keep their order, verbs to different nodes do not, and a READ or WRITE of
//! several words may move any of them first. So each node's verbs are cut at a random place,
//! possibly within a verb, and everything before the cuts is posted first. This exercises every
//! order that the contract of a batch permits, with gaps of milliseconds.

use crate::{Batch, Endpoint, FabricError, Verb, VerbKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The shortest delay.
const SHORTEST: Duration = Duration::from_micros(1);
/// Spreads the seeds of endpoints and the numbers of one (the increment of `SplitMix64`).
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Configuration of random delays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Jitter {
    /// The share of batches that are delayed, from 0 to 1.
    pub share: f64,
    /// The longest delay. Delays between 10 and 100 microseconds are as likely as delays between 1
    /// and 10 milliseconds.
    pub longest: Duration,
    /// The seed that determines which batches of each endpoint are delayed, and how.
    pub seed: u64,
}

/// Counts of a fabric's random delays, over all its endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JitterCounts {
    /// Batches delayed.
    pub batches: u64,
    /// Of these, batches posted in two parts.
    pub split: u64,
    /// The sum of the delays.
    pub time: Duration,
}

/// The running counts of a [`super::Delaying`] fabric. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct JitterTally(Arc<Tally>);

#[derive(Debug, Default)]
struct Tally {
    /// Endpoints opened.
    endpoints: AtomicU64,
    batches: AtomicU64,
    split: AtomicU64,
    nanoseconds: AtomicU64,
}

impl JitterTally {
    /// Returns the counts so far.
    pub fn counts(&self) -> JitterCounts {
        JitterCounts {
            batches: self.0.batches.load(Ordering::Relaxed),
            split: self.0.split.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.0.nanoseconds.load(Ordering::Relaxed)),
        }
    }
}

/// Position of a delay in a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before the batch is posted.
    Before,
    /// Between two parts of it.
    Within,
    /// After it has taken effect.
    After,
}

/// The random delays of one endpoint.
#[derive(Debug)]
pub(super) struct Source {
    jitter: Jitter,
    tally: JitterTally,
    state: u64,
}

impl Source {
    pub(super) fn new(jitter: Jitter, tally: JitterTally) -> Self {
        let number = tally.0.endpoints.fetch_add(1, Ordering::Relaxed);
        let mut source = Self { jitter, tally, state: jitter.seed };
        // Adjacent seeds must not give similar sequences.
        source.state = source.next() ^ number.wrapping_mul(GAMMA);
        source
    }

    /// Returns the next random number (`SplitMix64`).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GAMMA);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0.0..1.0`.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `bound`, which must not be 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Decides whether the next batch is delayed, where and for how long.
    pub(super) fn draw(&mut self) -> Option<(Moment, Duration)> {
        if self.jitter.share <= 0.0 || self.fraction() >= self.jitter.share {
            return None;
        }
        let moment = [Moment::Before, Moment::Within, Moment::After][self.below(3) as usize];
        let orders = self.jitter.longest.as_secs_f64() / SHORTEST.as_secs_f64();
        Some((moment, SHORTEST.mul_f64(orders.max(1.0).powf(self.fraction()))))
    }

    /// Makes this thread sleep.
    pub(super) fn delay(&self, time: Duration) {
        std::thread::sleep(time);
        self.tally.0.batches.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.tally.0.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    /// Posts a batch in two parts with a delay between them.
    ///
    /// # Errors
    /// Those of `inner`. If the second part fails, verbs of the first have taken effect, so the
    /// error never claims that nothing was sent.
    pub(super) async fn submit_in_parts<E: Endpoint>(
        &mut self,
        inner: &mut E,
        mut batch: Batch,
        time: Duration,
    ) -> Result<Batch, FabricError> {
        let (first, second) = self.cut(batch.verbs());
        if first.is_empty() || second.is_empty() {
            self.delay(time);
            return inner.submit(batch).await;
        }
        post(inner, &mut batch, &first).await?;
        self.delay(time);
        self.tally.0.split.fetch_add(1, Ordering::Relaxed);
        post(inner, &mut batch, &second).await.map_err(half_sent)?;
        Ok(batch)
    }

    /// Splits the verbs of every node in two.
    fn cut(&mut self, verbs: &[Verb]) -> (Vec<Verb>, Vec<Verb>) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut nodes: Vec<u8> = verbs.iter().map(|verb| verb.addr.node()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for node in nodes {
            let of_node = verbs.iter().filter(|verb| verb.addr.node() == node);
            let cut = self.below(of_node.clone().count() as u64 + 1);
            for (at, verb) in (0..).zip(of_node) {
                if at < cut {
                    first.push(*verb);
                } else if at == cut && verb.words > 1 && self.below(2) == 0 {
                    let (earlier, later) = self.tear(verb);
                    first.push(earlier);
                    second.push(later);
                } else {
                    second.push(*verb);
                }
            }
        }
        (first, second)
    }

    /// Splits a verb of several words in two, in either order.
    fn tear(&mut self, verb: &Verb) -> (Verb, Verb) {
        let words = 1 + self.below(u64::from(verb.words) - 1) as u32;
        let head = Verb { words, ..*verb };
        let tail = Verb {
            addr: verb.addr.plus(u64::from(words) * 8),
            at: verb.at + words,
            words: verb.words - words,
            ..*verb
        };
        if self.below(2) == 0 { (head, tail) } else { (tail, head) }
    }
}

/// Returns the error of a batch whose first part took effect. It must not claim that nothing was
/// sent.
fn half_sent(error: FabricError) -> FabricError {
    match error {
        FabricError::Unreachable { node } => FabricError::Disconnected { node },
        error => error,
    }
}

/// Posts some verbs of a batch, or parts of them, and copies their results into the batch.
async fn post<E: Endpoint>(inner: &mut E, batch: &mut Batch, verbs: &[Verb]) -> Result<(), FabricError> {
    let mut part = inner.batch();
    let (_, data) = batch.parts_mut();
    for verb in verbs {
        let at = verb.at as usize;
        match verb.kind {
            VerbKind::Read => drop(part.read(verb.addr, verb.words as usize)),
            VerbKind::Write => part.write(verb.addr, &data[at..at + verb.words as usize]),
            VerbKind::Cas => drop(part.cas(verb.addr, data[at], data[at + 1])),
            VerbKind::Faa => drop(part.faa(verb.addr, data[at])),
        }
    }
    let mut part = inner.submit(part).await?;
    let (_, data) = batch.parts_mut();
    let (posted, found) = part.parts_mut();
    for (verb, posted) in verbs.iter().zip(posted) {
        if verb.kind != VerbKind::Write {
            let words = verb.words as usize;
            let (to, from) = (verb.at as usize, posted.at as usize);
            data[to..to + words].copy_from_slice(&found[from..from + words]);
        }
    }
    inner.recycle(part);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_which_a_part_has_landed_is_not_called_unsent() {
        let error = half_sent(FabricError::Unreachable { node: 3 });
        assert!(matches!(error, FabricError::Disconnected { node: 3 }), "{error}");
        assert!(matches!(half_sent(FabricError::Fenced), FabricError::Fenced));
    }

    /// Delays between 1 and 10 microseconds are as frequent as between 1 and 10 milliseconds, and
    /// none exceeds the longest.
    #[test]
    fn delays_are_of_every_order_of_magnitude() {
        let jitter = Jitter { share: 1.0, longest: Duration::from_millis(10), seed: 1 };
        let mut source = Source::new(jitter, JitterTally::default());
        let mut orders = [0; 4];
        for _ in 0..4000 {
            let (_, time) = source.draw().unwrap();
            assert!(time >= SHORTEST && time <= jitter.longest, "{time:?}");
            orders[((time.as_nanos() as f64 / 1e3).log10() as usize).min(3)] += 1;
        }
        assert!(orders.iter().all(|&count| (800..1200).contains(&count)), "{orders:?}");
    }
}
