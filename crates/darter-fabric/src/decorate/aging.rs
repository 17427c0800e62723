//! Measures how soon memory is written again: the time between two long WRITEs to one address.
//!
//! An index that writes only unreachable memory writes an address again after the object there was
//! replaced, waited for its readers, and was allocated anew. So the time is an upper bound on how
//! long freed memory lies idle.

use super::{forward_endpoint, forward_fabric, forward_membership, forward_statistics};
use crate::{Batch, Endpoint, Fabric, FabricError, RemoteProcedures, VerbKind};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Number of ages that are distinguished: powers of two of a microsecond.
pub const AGES: usize = 40;

/// Counts of rewrites by age: entry `i` counts ages below 2^i microseconds and not below half of
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ages(pub [u64; AGES]);

impl Default for Ages {
    fn default() -> Self {
        Self([0; AGES])
    }
}

impl Ages {
    /// Returns the number of rewrites.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns an age such that at least this share of the ages, from 0 to 1, lies below it; exact
    /// to a power of two.
    pub fn below(&self, share: f64) -> Duration {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut count = 0;
        let place = self.0.iter().position(|ages| {
            count += ages;
            count >= wanted
        });
        Duration::from_micros(1 << place.unwrap_or(AGES))
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    fn note(&mut self, age: Duration) {
        let microseconds = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        let place = u64::BITS - microseconds.leading_zeros();
        self.0[(place as usize).min(AGES - 1)] += 1;
    }
}

/// The ages measured by all endpoints of an [`Aging`] fabric. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct AgeTally(Arc<Mutex<Met>>);

#[derive(Debug, Default)]
struct Met {
    ages: Ages,
    written: HashMap<u64, Instant>,
}

impl AgeTally {
    /// Returns the ages so far.
    pub fn ages(&self) -> Ages {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ages
    }

    fn note(&self, batch: &Batch, words_min: u32) {
        let long = |verb: &&crate::Verb| verb.kind == VerbKind::Write && verb.words >= words_min;
        let mut met = None;
        for verb in batch.verbs().iter().filter(long) {
            let Met { ages, written } =
                &mut **met.get_or_insert_with(|| self.0.lock().unwrap_or_else(PoisonError::into_inner));
            let now = Instant::now();
            if let Some(before) = written.insert(verb.addr.bits(), now) {
                ages.note(now.duration_since(before));
            }
        }
    }
}

/// A fabric that measures how soon memory is written again.
#[derive(Clone, Debug)]
pub struct Aging<F> {
    inner: F,
    words_min: u32,
    tally: AgeTally,
}

impl<F> Aging<F> {
    /// Wraps a fabric; WRITEs shorter than `words_min` words are ignored.
    pub fn new(inner: F, words_min: u32) -> Self {
        Self { inner, words_min, tally: AgeTally::default() }
    }

    /// Returns the measured ages.
    pub fn tally(&self) -> &AgeTally {
        &self.tally
    }

    /// Returns the wrapped fabric.
    pub fn inner(&self) -> &F {
        &self.inner
    }
}

forward_membership!(Aging);

impl<F: Fabric> Fabric for Aging<F> {
    type Endpoint = AgingEndpoint<F::Endpoint>;

    fn endpoint(&self) -> Result<Self::Endpoint, FabricError> {
        let inner = self.inner.endpoint()?;
        Ok(AgingEndpoint { inner, words_min: self.words_min, tally: self.tally.clone() })
    }

    forward_fabric!();
}

/// An endpoint that measures how soon memory is written again.
#[derive(Debug)]
pub struct AgingEndpoint<E> {
    inner: E,
    words_min: u32,
    tally: AgeTally,
}

impl<E: Endpoint> Endpoint for AgingEndpoint<E> {
    forward_endpoint!();
    forward_statistics!();

    fn submit(&mut self, batch: Batch) -> impl Future<Output = Result<Batch, FabricError>> + Send {
        self.tally.note(&batch, self.words_min);
        self.inner.submit(batch)
    }

    fn procedures(&mut self) -> Option<&mut dyn RemoteProcedures> {
        self.inner.procedures()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_counted_by_powers_of_two() {
        let mut ages = Ages::default();
        for (microseconds, place) in [(0, 0), (1, 1), (2, 2), (3, 2), (1000, 10), (u64::MAX, AGES - 1)] {
            let before = ages.0[place];
            ages.note(Duration::from_micros(microseconds));
            assert_eq!(ages.0[place], before + 1, "{microseconds}");
        }
        let mut sum = ages;
        sum.add(&ages);
        assert_eq!((ages.count(), sum.count()), (6, 12));
        assert_eq!(ages.below(0.5), Duration::from_micros(4));
        assert_eq!(ages.below(0.8), Duration::from_micros(1024));
    }
}
